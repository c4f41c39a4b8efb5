"""Files shipped beside an evaluator, and values granted to it: the same behind every wall."""

import gzip
import io
import json
import pickle
import random
import subprocess
import sys
import tarfile
import uuid
import zipfile

import pytest
from shipping import confined, run, shipped, values
from walls import WALLS, wall_of

from evalcell_sandboxes import Crashed, Exceeded, Raised, Sandbox, SandboxFault, assets, sandbox, silent

EVALUATE = "def evaluate(output):\n"
TEXT = "alpha\nbeta\ngämma\n"


def _archive() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("inner.txt", "zipped")
    return packed.getvalue()


def _tar() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(member := tarfile.TarInfo("inner.txt"), io.BytesIO(b""))
        assert member.size == 0
    return packed.getvalue()


FILES = {
    "words.txt": TEXT.encode(),
    "latin.txt": "gämma\r\n".encode("latin-1"),
    "data/deep/table.csv": b"a,b\n1,2\n",
    "data/schema.json": b'{"type": "object"}',
    "model.pkl": pickle.dumps({"weights": [1.5, 2.5]}, protocol=4),
    "text.gz": gzip.compress(b"compressed"),
    "pack.zip": _archive(),
    "pack.tar": _tar(),
    "set.toml": b"answer = 42\n",
    "set.ini": b"[part]\nkey = value\n",
    "empty.bin": b"",
    "läßt 漢字.txt": b"named",
}
HEAD = """
import array, configparser, csv, errno, gzip, io, json, linecache, os, pickle, shutil, stat, tarfile, tomllib, zipfile
from pathlib import Path
HERE = Path(__file__).parent
"""
READS = {
    "text": ("open('words.txt', encoding='utf-8').read()", TEXT),
    "lines": ("[line for line in open('words.txt', encoding='utf-8')]", ["alpha\n", "beta\n", "gämma\n"]),
    "binary": ("list(open('words.txt', 'rb').read(3))", [97, 108, 112]),
    "io-open": ("io.open('empty.bin', 'rb').read() == b''", True),
    "encoding": ("open('latin.txt', encoding='latin-1').read()", "gämma\n"),
    "newline": ("open('latin.txt', encoding='latin-1', newline='').read()", "gämma\r\n"),
    "errors": ("open('latin.txt', encoding='ascii', errors='replace').read()", "g\ufffdmma\n"),
    "unicode-error": ("raised(lambda: open('latin.txt', encoding='utf-8').read())", "UnicodeDecodeError"),
    "seek-and-tell": ("seeking(open('words.txt', 'rb'))", [6, "beta"]),
    "seek-in-text": ("seeking(open('words.txt', encoding='utf-8'))", [6, "beta"]),
    "closed-by-with": ("closing(open('words.txt', encoding='utf-8'))", [False, True]),
    "name-and-mode": ("[(f.name, f.mode) for f in [open('words.txt'), open('words.txt', 'rb')]]", [["words.txt", "r"], ["words.txt", "rb"]]),
    "unbuffered": ("open('words.txt', 'rb', 0).read(5).decode()", "alpha"),
    "readinto": ("readinto(open('words.txt', 'rb'))", "alp"),
    "not-writable": ("[f.writable() for f in [open('words.txt'), open('words.txt', 'rb')]]", [False, False]),
    "no-such-mode": ("raised(lambda: open('words.txt', 'rq'))", "ValueError"),
    "no-encoding-of-bytes": ("raised(lambda: open('words.txt', 'rb', encoding='utf-8'))", "ValueError"),
    "with-name": ("Path(__file__).with_name('words.txt').read_text(encoding='utf-8')", TEXT),
    "parent": ("(HERE / 'data' / 'schema.json').read_bytes().decode()", '{"type": "object"}'),
    "file": ("__file__", "/evaluator/judge.py"),
    "working-directory": ("[os.getcwd(), str(Path.cwd())]", ["/evaluator", "/evaluator"]),
    "resolve": ("[str(Path('words.txt').resolve()), os.path.abspath('data/../words.txt')]", ["/evaluator/words.txt"] * 2),
    "strictly": ("str(Path('data/schema.json').resolve(strict=True))", "/evaluator/data/schema.json"),
    "exists": ("[Path(name).exists() for name in ('words.txt', 'data', 'data/deep', 'nope')]", [True, True, True, False]),
    "is-file": ("[Path(name).is_file() for name in ('words.txt', 'data', 'nope')]", [True, False, False]),
    "is-dir": ("[os.path.isdir(name) for name in ('words.txt', 'data', '.', 'nope')]", [False, True, True, False]),
    "no-link": ("[os.path.islink('words.txt'), Path('data').is_symlink()]", [False, False]),
    "size": ("[os.path.getsize('words.txt'), Path('words.txt').stat().st_size]", [len(TEXT.encode())] * 2),
    "owner-and-mode": ("[(s.st_uid, stat.S_IMODE(s.st_mode), stat.S_ISREG(s.st_mode)) for s in [os.lstat('words.txt')]]", [[0, 0o444, True]]),
    "same-file": ("[os.path.samefile('words.txt', HERE / 'words.txt'), os.path.samefile('words.txt', 'set.ini')]", [True, False]),
    "listdir": ("sorted(os.listdir())", sorted({name.split("/")[0] for name in FILES})),
    "listdir-of-bytes": ("[name.decode() for name in os.listdir(b'data/deep')]", ["table.csv"]),
    "scandir": ("sorted((e.name, e.path, e.is_dir()) for e in os.scandir('data'))", [["deep", "data/deep", True], ["schema.json", "data/schema.json", False]]),
    "iterdir": ("sorted(map(str, (HERE / 'data').iterdir()))", ["/evaluator/data/deep", "/evaluator/data/schema.json"]),
    "glob": ("sorted(map(str, HERE.glob('**/*.csv')))", ["/evaluator/data/deep/table.csv"]),
    "walk": ("sorted(name for _, _, found in os.walk('data') for name in found)", ["schema.json", "table.csv"]),
    "access": ("[os.access('words.txt', mode) for mode in (os.F_OK, os.R_OK, os.W_OK, os.X_OK)]", [True, True, False, False]),
    "descriptor": ("descriptor()", ["alp", "ha", 18]),
    "fdopen": ("os.fdopen(os.open('data/schema.json', os.O_RDONLY)).read()", '{"type": "object"}'),
    "closed-with-its-file": ("closed_with_its_file()", ["EBADF"] * 4),
    "closed-beneath-its-file": ("closed_beneath_its_file()", "EBADF"),
    "lent-descriptor": ("lent()", ["al", "pha", "alpha"]),
    "descriptor-of-a-file": ("[os.fstat(f.fileno()).st_size for f in [open('words.txt'), open('words.txt', 'rb', 0)]]", [18, 18]),
    "pread": ("pread()", ["eta", "alp", ""]),
    "no-negative-read": ("code(lambda: os.read(open('words.txt').fileno(), -1))", "EINVAL"),
    "before-the-start": ("[code(lambda: open('words.txt', 'rb', size).seek(-19, 2)) for size in (0, -1)]", ["EINVAL"] * 2),
    "after-the-end": ("[(f.seek(99), f.read().decode(), f.tell()) for f in [open('words.txt', 'rb', 0)]]", [[99, "", 99]]),
    "readall": ("[(f.read(6).decode(), f.readall().decode(), f.read()) == ('alpha\\n', 'beta\\ng\xe4mma\\n', b'') for f in [open('words.txt', 'rb', 0)]]", [True]),
    "raw-file": ("[(f.name, f.mode, f.closefd, f.readable(), f.seekable(), f.writable()) for f in [open('words.txt', 'rb', 0)]]", [["words.txt", "rb", True, True, True, False]]),
    "raw-file-closed": ("raw_file_closed()", ["ValueError"] * 4),
    "no-write-to-it": ("[raised(lambda: open('words.txt', 'rb', size).write(b'x')) for size in (0, -1)]", ["UnsupportedOperation"] * 2),
    "into-wider-items": ("into_wider_items()", [4, "alph"]),
    "no-unbuffered-text": ("said(lambda: open('words.txt', 'r', 0))", "ValueError: can't have unbuffered text I/O"),
    "named-and-not-closed": ("said(lambda: open('words.txt', closefd=False))", "ValueError: Cannot use closefd=False with file name"),
    "times": ("[type(t).__name__ for s in [os.stat('words.txt')] for t in (s.st_mtime, s.st_mtime_ns, s.st_atime_ns, s.st_ctime_ns)]", ["float", "int", "int", "int"]),
    "pickle": ("pickle.load(open('model.pkl', 'rb'))", {"weights": [1.5, 2.5]}),
    "json": ("json.load(open('data/schema.json'))", {"type": "object"}),
    "csv": ("list(csv.reader(open('data/deep/table.csv', newline='')))", [["a", "b"], ["1", "2"]]),
    "gzip": ("gzip.open('text.gz', 'rt').read()", "compressed"),
    "zip": ("zipfile.ZipFile('pack.zip').read('inner.txt').decode()", "zipped"),
    "tar": ("tarfile.open('pack.tar').getnames()", ["inner.txt"]),
    "toml": ("tomllib.load(open('set.toml', 'rb'))", {"answer": 42}),
    "ini": ("ini()", ["set.ini", "value"]),
    "linecache": ("linecache.getline('/evaluator/words.txt', 2)", "beta\n"),
    "unicode-name": ("(HERE / 'läßt 漢字.txt').read_text()", "named"),
    "missing": ("[raised(lambda: open('wrods.txt')), raised(lambda: os.stat('data/nope'))]", ["FileNotFoundError"] * 2),
    "directory": ("raised(lambda: open('data'))", "IsADirectoryError"),
    "ways-there": ("[os.path.exists(name) for name in ('data/', 'data/.', 'data//deep/../schema.json', '../evaluator/words.txt', '//evaluator/words.txt', '///evaluator//words.txt')]", [True] * 6),
    "ways-through-a-file": ("[code(lambda: look(name + end)) for name in ['words.txt'] for end in ('/', '/.', '/..', '/x', '/../words.txt') for look in (os.stat, open)]", ["ENOTDIR"] * 10),
    "ways-through-nothing": ("[code(lambda: look(name)) for name in ('nope/../words.txt', 'data/nope/../schema.json', 'nope/') for look in (os.stat, open, os.listdir)]", ["ENOENT"] * 9),
    "no-way": ("[os.access(name, os.F_OK) for name in ('words.txt/', 'words.txt/x', 'nope/../words.txt', 'nope')]", [False] * 4),
    "nul-in-a-name": ("[said(lambda: look('words.txt\\0'))[:25] for look in (open, os.stat, os.listdir, os.mkdir)]", ["ValueError: embedded null"] * 4),
    "nul-is-nowhere": ("[os.path.exists('words.txt\\0'), Path('words.txt\\0').is_file()]", [False, False]),
    "opened-as-directory": ("code(lambda: os.open('words.txt', os.O_RDONLY | os.O_DIRECTORY))", "ENOTDIR"),
    "no-directory": ("raised(lambda: os.listdir('words.txt'))", "NotADirectoryError"),
    "back-and-forth": ("moving()", ["/evaluator/data", '{"type": "object"}', "/evaluator"]),
}  # fmt: skip
HELPERS = """
import contextlib

def raised(action):
    try:
        action()
    except Exception as error:
        return type(error).__name__

def said(action):
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def code(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno]

def closed_with_its_file():
    fd = os.open("words.txt", os.O_RDONLY)
    os.fdopen(fd).close()
    return [code(lambda: use(fd)) for use in (os.fstat, os.close, open, lambda fd: os.read(fd, 1))]

def closed_beneath_its_file():
    file = open("words.txt", "rb", 0)
    os.close(file.fileno())
    try:
        return code(lambda: file.read(1))
    finally:
        code(file.close)

def lent():
    fd = os.open("words.txt", os.O_RDONLY)
    with open(fd, "rb", 0, closefd=False) as file:
        found = [file.read(2).decode(), os.read(fd, 3).decode()]
    os.lseek(fd, 0, os.SEEK_SET)
    with open(fd, closefd=False) as file:
        found.append(file.readline().strip())
    os.close(fd)
    return found

def pread():
    with open("words.txt", "rb", 0) as file:
        fd = file.fileno()
        return [os.pread(fd, 3, 7).decode(), file.read(3).decode(), os.pread(fd, 3, 99).decode()]

def raw_file_closed():
    file = open("words.txt", "rb", 0)
    file.close()
    return [raised(use) for use in (file.fileno, file.read, file.readable, lambda: file.seek(0))]

def into_wider_items():
    room = array.array("H", [0, 0])
    return [open("words.txt", "rb", 0).readinto(room), room.tobytes().decode()]

def seeking(file):
    file.seek(0, 2), file.seek(6)
    at = file.tell()
    line = file.readline().strip()
    return [at, line if isinstance(line, str) else line.decode()]

def closing(file):
    with file as opened:
        before = opened.closed
    return [before, opened.closed]

def readinto(file):
    room = bytearray(3)
    file.readinto(room)
    return room.decode()

def descriptor():
    fd = os.open("words.txt", os.O_RDONLY)
    try:
        return [os.read(fd, 3).decode(), os.read(fd, 2).decode(), os.fstat(fd).st_size]
    finally:
        os.close(fd)

def ini():
    found = configparser.ConfigParser()
    return [*found.read(["set.ini", "nope.ini"]), found["part"]["key"]]

def moving():
    with contextlib.chdir("data"):
        found = [os.getcwd(), open("schema.json").read()]
    return [*found, os.getcwd()]
"""


@pytest.fixture(params=WALLS)
def wall(request) -> Sandbox:
    return wall_of(request)


@pytest.mark.parametrize("when", ["load", "row"])
def test_files_are_read_as_files_are(wall, when):
    table = json.dumps({name: expression for name, (expression, _) in READS.items()})
    source = (
        f"{HEAD}{HELPERS}\nEXPRESSIONS = {table}\n"
        "def look():\n    found = {}\n"
        "    for name, expression in EXPRESSIONS.items():\n"
        "        try:\n            found[name] = eval(expression)\n"
        "        except Exception as error:\n            found[name] = repr(error)\n"
        "    return json.loads(json.dumps(found))\n"
    )
    source += "FOUND = look()\n" + EVALUATE + f"    return {'FOUND' if when == 'load' else 'look()'}\n"
    first, second = values(run(wall, shipped(source, FILES), confined(), 1, 2))
    assert first == {name: json.loads(json.dumps(expected)) for name, (_, expected) in READS.items()}
    assert second == first


WRITES = {
    "write": "open('words.txt', 'w').write('mine')",
    "append": "open('words.txt', 'a').write('mine')",
    "update": "open('words.txt', 'r+').write('mine')",
    "binary": "open('words.txt', 'wb').write(b'mine')",
    "new-file": "open('new.txt', 'x').write('mine')",
    "write-text": "(HERE / 'words.txt').write_text('mine')",
    "descriptor": "os.write(os.open('words.txt', os.O_RDWR), b'mine')",
    "truncate": "os.truncate('words.txt', 0)",
    "remove": "os.remove('words.txt')",
    "unlink": "(HERE / 'words.txt').unlink()",
    "rename": "os.rename('words.txt', 'other.txt')",
    "replace": "os.replace('set.ini', 'words.txt')",
    "mode": "os.chmod('words.txt', 0o777); open('words.txt', 'w').write('mine')",
    "directory": "os.rename('data', 'other')",
    "new-directory": "os.mkdir('mine')",
    "link": "os.symlink('set.ini', 'new.txt')",
    "tree": "shutil.rmtree('data')",
}
STATE = "sorted((str(path), path.is_file() and path.read_bytes().hex()) for path in Path('.').rglob('*'))"


def test_a_row_cannot_change_remove_or_replace_them(wall):
    source = f"{HEAD}BEFORE = {STATE}\n" + EVALUATE + (
        "    try:\n        exec(output)\n        said = 'done'\n"
        "    except OSError as error:\n        said = 'refused'\n"
        f"    return [said, {STATE} == BEFORE]\n"
    )  # fmt: skip
    found = values(run(wall, shipped(source, FILES), confined(), *WRITES.values()))
    assert dict(zip(WRITES, found, strict=True)) == {name: ["refused", True] for name in WRITES}


@pytest.mark.parametrize("name", WRITES)
def test_without_a_wall_the_same_code_changes_them(name, tmp_path):
    for file, content in FILES.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(content)
    code = f"__file__ = 'x.py'\n{HEAD}BEFORE = {STATE}\nexec({WRITES[name]!r})\nassert {STATE} != BEFORE"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_every_row_finds_an_open_file_where_loading_left_it(wall):
    source = "FILE = open('words.txt')\nFILE.readline()\n" + EVALUATE + "    return FILE.readline()\n"
    assert values(run(wall, shipped(source, FILES), confined(), 1, 2, 3)) == ["beta\n"] * 3


def test_they_are_there_again_after_a_row_that_ended_everything(wall):
    source = "import os\n" + EVALUATE + (
        "    if output == 'die': os._exit(3)\n"
        "    while output == 'hang': pass\n"
        "    return open('data/schema.json').read() + os.environ['GRANTED']\n"
    )  # fmt: skip
    program, confinement = shipped(source, FILES), confined(wall_seconds=0.7, environment={"GRANTED": "!"})
    died, first, hung, second = run(wall, program, confinement, "die", 1, "hang", 2)
    assert isinstance(died, Crashed)
    assert isinstance(hung, Exceeded)
    assert values([first, second]) == ['{"type": "object"}!'] * 2


def test_fit_and_aggregate_read_them_too(wall):
    source = (
        "def fit(rows):\n    global FITTED\n    FITTED = open('data/schema.json').read()\n"
        + EVALUATE
        + "    return FITTED\ndef aggregate(results):\n    return len(open('data/schema.json').read())\n"
    )
    program = shipped(source, FILES)
    wall.prepare(program, silent)
    with wall.open(program, confined()) as session:
        session.fit([b'{"output": 1}'])
        assert values([*session.run([b'{"output": 1}']), session.aggregate(b"[]")]) == ['{"type": "object"}', 18]


def test_tracebacks_name_the_file_as_without_assets(wall):
    (outcome,) = run(
        wall, shipped("import json\n" + EVALUATE + "    return json.loads(output)\n", FILES), confined(), "{"
    )
    assert isinstance(outcome, Raised)
    assert 'File "judge.py", line 3, in evaluate\n    return json.loads(output)' in outcome.traceback


def test_without_assets_nothing_is_there(wall):
    source = "import os\n" + EVALUATE + "    return [__file__, os.path.exists('/evaluator'), type(open).__name__]\n"
    found = values(run(wall, shipped(source, {}), confined(), 1))
    assert found == [["judge.py", False, "builtin_function_or_method"]]


def test_a_copy_that_was_changed_in_the_store_is_never_used(wall, tmp_path, monkeypatch):
    content = uuid.uuid4().bytes
    program = shipped(EVALUATE + "    return open('a', 'rb').read().hex()\n", {"a": content})
    kept = assets.cache_dir() / "assets" / program.assets[0].sha256
    kept.write_bytes(bytes(len(content)))
    with pytest.raises(SandboxFault, match="changed by somebody"):
        run(wall, program, confined(), 1)
    assert not kept.exists()
    shipped("", {"a": content})  # as the next run does
    assert values(run(wall, program, confined(), 1)) == [content.hex()]


def test_twenty_megabytes_fit_under_the_default_limits(wall):
    content = random.Random(7).randbytes(1 << 20) * 20
    source = "CONTENT = open('large.bin', 'rb').read()\n" + EVALUATE + (
        "    with open('large.bin', 'rb') as file:\n        file.seek(-output, 2)\n        return file.read(2).hex()\n"
    )  # fmt: skip
    found = values(run(wall, shipped(source, {"large.bin": content}), confined(), 2, 5, 2))
    assert found == [content[-2:].hex(), content[-5:-3].hex(), content[-2:].hex()]


def test_what_does_not_fit_into_memory_is_said_to_have_run_into_its_limit():
    program = shipped(EVALUATE + "    return 1\n", {"large.bin": bytes(80 * 1024**2)})
    (outcome,) = run(sandbox("wasm"), program, confined(memory_bytes=96 * 1024**2), 1)
    assert isinstance(outcome, Exceeded)
    assert outcome.limit == "memory_bytes"
    assert "assets" in outcome.message


@pytest.mark.parametrize(("isolation", "seen"), [("row", "alpha"), ("evaluator", "mine")])
def test_what_a_row_does_to_the_store_from_inside_is_gone_with_it(isolation, seen):
    """Under `evaluator` isolation it is not, which is the control."""
    source = "import sys\n" + EVALUATE + (
        "    found = open('words.txt').readline().strip()\n"
        "    sys.modules['files']._files['words.txt'] = b'mine'\n"
        "    return found\n"
    )  # fmt: skip
    assert values(run(sandbox("wasm"), shipped(source, FILES), confined(isolation), 1, 2)) == ["alpha", seen]


# -- values of the environment ------------------------------------------------------------------------------------------
ENVIRONMENT = "import os\nLOADED = dict(os.environ)\n" + EVALUATE + (
    "    return [os.getenv('GRANTED'), dict(os.environ) == LOADED, sorted(LOADED)]\n"
)  # fmt: skip


def test_granted_values_are_visible_and_nothing_of_the_hosts(wall, monkeypatch):
    monkeypatch.setenv("EVALCELL_TEST_CANARY", "secret")
    program = shipped(ENVIRONMENT, {})
    (without,) = values(run(wall, program, confined(), 1))
    granted = values(run(wall, program, confined(environment={"GRANTED": "läßt"}), 1, 2))
    assert without[0] is None
    assert "EVALCELL_TEST_CANARY" not in without[2]
    assert granted == [["läßt", True, sorted([*without[2], "GRANTED"])]] * 2
    if wall.name == "wasm":
        assert without[2] == []


def test_a_row_cannot_change_the_values_of_the_next(wall):
    source = (
        "import os\n"
        + EVALUATE
        + "    found = os.environ['GRANTED']\n    os.environ['GRANTED'] = 'x'\n    return found\n"
    )
    assert values(run(wall, shipped(source, {}), confined(environment={"GRANTED": "v"}), 1, 2)) == ["v", "v"]
