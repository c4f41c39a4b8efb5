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
from forms import Forms, evaluating, language_of, named, only_in_python
from shipping import confined, run, shipped, values
from walls import WALLS, wall_of

from evalcell_sandboxes import (
    Crashed,
    Exceeded,
    Language,
    Program,
    Raised,
    Sandbox,
    SandboxFault,
    assets,
    sandbox,
    silent,
)

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
READS_IN_TYPESCRIPT = {
    "text": ("Deno.readTextFileSync('words.txt')", TEXT),
    "text-later": ("await Deno.readTextFile('words.txt')", TEXT),
    "bytes": ("[...Deno.readFileSync('words.txt').slice(0, 3)]", [97, 108, 112]),
    "bytes-later": ("[...(await Deno.readFile('words.txt')).slice(0, 3)]", [97, 108, 112]),
    "kind": ("Deno.readFileSync('empty.bin') instanceof Uint8Array", True),
    "empty": ("[Deno.readFileSync('empty.bin').length, Deno.readTextFileSync('empty.bin')]", [0, ""]),
    "no-text": ("said(() => Deno.readTextFileSync('latin.txt'))", "TypeError: \"latin.txt\" is not UTF-8 text"),
    "bytes-of-no-text": ("Deno.readFileSync('latin.txt').toHex()", "g\xe4mma\r\n".encode("latin-1").hex()),
    "json": ("JSON.parse(Deno.readTextFileSync('data/schema.json'))", {"type": "object"}),
    "unicode-name": ("Deno.readTextFileSync('läßt 漢字.txt')", "named"),
    "archive": ("Deno.readFileSync('pack.zip').length", len(FILES["pack.zip"])),
    "whole-name": ("Deno.readTextFileSync('/evaluator/words.txt')", TEXT),
    "ways-there": ("['./words.txt', 'data/../words.txt', 'data//deep/../../words.txt', '../evaluator/words.txt', '//evaluator/words.txt'].map((name) => Deno.readTextFileSync(name).length)", [len(TEXT)] * 5),
    "missing": ("said(() => Deno.readTextFileSync('wrods.txt')).slice(0, 39)", 'NotFound: there is no asset "wrods.txt"'),
    "missing-later": ("await Deno.readFile('nope').catch((error) => error instanceof Deno.errors.NotFound)", True),
    "directory": ("said(() => Deno.readFileSync('data')).slice(0, 8)", "NotFound"),
    "out-of-it": ("['/etc/passwd', '../words.txt', '../../evaluator', '__proto__', '/proc/self/environ'].map((name) => said(() => Deno.readTextFileSync(name)).slice(0, 8))", ["NotFound"] * 5),
    "names-of-objects": ("['constructor', 'toString', '__proto__'].map((name) => said(() => Deno.readFileSync(name)).slice(0, 8))", ["NotFound"] * 3),
    "each-time-anew": ("[Deno.readFileSync('words.txt').fill(0), Deno.readFileSync('words.txt')][1][0]", 97),
}  # fmt: skip
LOOKED_FOR = Forms(READS, READS_IN_TYPESCRIPT)
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


def packed(wall: Sandbox, source: Forms[str], files: dict[str, bytes] = FILES) -> Program:
    """A judge in the wall's language, with those files beside it."""
    return shipped(source.of(wall), files, **named(wall, "judge"))


def looking(reads: Forms[dict[str, tuple[str, object]]]) -> Forms[str]:
    """A module whose `look` gives what every expression comes to."""
    expressions = json.dumps({name: expression for name, (expression, _) in reads.python.items()})
    looks = ",\n".join(f"{json.dumps(name)}: async () => {look}" for name, (look, _) in reads.typescript.items())
    return Forms(
        f"{HEAD}{HELPERS}\nEXPRESSIONS = {expressions}\n"
        "def look():\n    found = {}\n"
        "    for name, expression in EXPRESSIONS.items():\n"
        "        try:\n            found[name] = eval(expression)\n"
        "        except Exception as error:\n            found[name] = repr(error)\n"
        "    return json.loads(json.dumps(found))\n",
        "function said(action: () => unknown): unknown {\n  try {\n    return action();\n"
        "  } catch (error) {\n    return String(error);\n  }\n}\n"
        f"const LOOKS = {{ {looks} }};\n"
        "async function look() {\n  const found = {};\n"
        "  for (const [name, each] of Object.entries(LOOKS)) found[name] = await each().catch(String);\n"
        "  return found;\n}\n",
    )


@pytest.mark.parametrize("when", ["load", "row"])
def test_files_are_read_as_files_are(wall, when):
    source = looking(LOOKED_FOR) + Forms("FOUND = look()\n", "const FOUND = await look();\n")
    found = "FOUND" if when == "load" else "look()"
    first, second = values(
        run(wall, packed(wall, source + evaluating(f"return {found}", f"return {found};")), confined(), 1, 2)
    )
    assert first == {name: json.loads(json.dumps(expected)) for name, (_, expected) in LOOKED_FOR.of(wall).items()}
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
WRITES_IN_TYPESCRIPT = {
    "write-text": "Deno.writeTextFileSync('words.txt', 'mine')",
    "write": "Deno.writeFileSync('words.txt', new Uint8Array(4))",
    "write-later": "await Deno.writeTextFile('words.txt', 'mine')",
    "open": "Deno.openSync('words.txt', { write: true })",
    "truncate": "Deno.truncateSync('words.txt')",
    "remove": "Deno.removeSync('words.txt')",
    "rename": "Deno.renameSync('words.txt', 'other.txt')",
    "copy": "Deno.copyFileSync('set.ini', 'words.txt')",
    "mode": "Deno.chmodSync('words.txt', 0o777)",
    "new-directory": "Deno.mkdirSync('mine')",
    "link": "Deno.symlinkSync('set.ini', 'new.txt')",
    "variable": "Deno.env.set('GRANTED', 'mine')",
    "no-variable": "Deno.env.delete('GRANTED')",
}
STATE = "sorted((str(path), path.is_file() and path.read_bytes().hex()) for path in Path('.').rglob('*'))"


STATE_IN_TYPESCRIPT = "JSON.stringify([NAMES.map((name) => Deno.readFileSync(name).toHex()), Deno.env.toObject()])"
WRITTEN = Forms(WRITES, WRITES_IN_TYPESCRIPT)
WRITING = Forms(
    f"{HEAD}BEFORE = {STATE}\ndef evaluate(output):\n"
    "    try:\n        exec(output)\n        said = 'done'\n"
    "    except OSError as error:\n        said = 'refused'\n"
    f"    return [said, {STATE} == BEFORE]\n",
    f"const NAMES = {json.dumps(list(FILES))};\nconst BEFORE = {STATE_IN_TYPESCRIPT};\n"
    f"const WRITES = {{ {', '.join(f'{json.dumps(write)}: async () => {write}' for write in WRITES_IN_TYPESCRIPT.values())} }};\n"
    "export async function evaluate({ output }) {\n"
    "  const said = await WRITES[output]().then(() => 'done', () => 'refused');\n"
    f"  return [said, {STATE_IN_TYPESCRIPT} === BEFORE];\n}}\n",
)  # fmt: skip


def test_a_row_cannot_change_remove_or_replace_them(wall):
    writes = WRITTEN.of(wall)
    found = values(run(wall, packed(wall, WRITING), confined(environment={"GRANTED": "v"}), *writes.values()))
    assert dict(zip(writes, found, strict=True)) == {name: ["refused", True] for name in writes}


@pytest.mark.parametrize("name", WRITES)
def test_without_a_wall_the_same_code_changes_them(name, tmp_path):
    for file, content in FILES.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(content)
    code = f"__file__ = 'x.py'\n{HEAD}BEFORE = {STATE}\nexec({WRITES[name]!r})\nassert {STATE} != BEFORE"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


@only_in_python
def test_every_row_finds_an_open_file_where_loading_left_it(wall):
    source = "FILE = open('words.txt')\nFILE.readline()\n" + EVALUATE + "    return FILE.readline()\n"
    assert values(run(wall, shipped(source, FILES), confined(), 1, 2, 3)) == ["beta\n"] * 3


DYING = Forms("import os\n", "") + evaluating(
    "\n    if output == 'die': os._exit(3)\n"
    "    while output == 'hang': pass\n"
    "    return open('data/schema.json').read() + os.environ['GRANTED']",
    "if (output === 'die') new Array(5e8).fill(0);\n"
    "  while (output === 'hang');\n"
    "  return Deno.readTextFileSync('data/schema.json') + Deno.env.get('GRANTED');",
)
DEATH = Forms(Crashed, Exceeded)
"""In TypeScript nothing ends a process but using up what it has."""


def test_they_are_there_again_after_a_row_that_ended_everything(wall):
    confinement = confined(wall_seconds=0.7, environment={"GRANTED": "!"})
    died, first, hung, second = run(wall, packed(wall, DYING), confinement, "die", 1, "hang", 2)
    assert isinstance(died, DEATH.of(wall))
    assert isinstance(hung, Exceeded)
    assert values([first, second]) == ['{"type": "object"}!'] * 2


FITTED = Forms(
    "def fit(rows):\n    global FITTED\n    FITTED = open('data/schema.json').read()\n"
    "def evaluate(output): return FITTED\n"
    "def aggregate(results): return len(open('data/schema.json').read())\n",
    "let fitted: string;\nexport function fit(rows) {\n  fitted = Deno.readTextFileSync('data/schema.json');\n}\n"
    "export const evaluate = ({ output }) => fitted;\n"
    "export const aggregate = (results) => Deno.readTextFileSync('data/schema.json').length;\n",
)


def test_fit_and_aggregate_read_them_too(wall):
    program = packed(wall, FITTED)
    wall.prepare(program, silent)
    with wall.open(program, confined()) as session:
        session.fit([b'{"output": 1}'])
        assert values([*session.run([b'{"output": 1}']), session.aggregate(b"[]")]) == ['{"type": "object"}', 18]


FAILING = Forms(
    "import json\ndef evaluate(output):\n    return json.loads(output)\n",
    "\nexport function evaluate({ output }) {\n    return JSON.parse(output);\n}\n",
)
FRAME = Forms(
    'File "judge.py", line 3, in evaluate\n    return json.loads(output)', "\n    at evaluate (judge.ts:3:17)"
)


def test_tracebacks_name_the_file_as_without_assets(wall):
    (outcome,) = run(wall, packed(wall, FAILING), confined(), "{")
    assert isinstance(outcome, Raised)
    assert FRAME.of(wall) in outcome.traceback


LOOKING_AROUND = Forms("import os\n", "") + evaluating(
    "return [__file__, os.path.exists('/evaluator'), type(open).__name__]",
    "try {\n    return Deno.readFileSync('words.txt');\n  } catch (error) {\n    return error.name;\n  }",
)
NOTHING = Forms(["judge.py", False, "builtin_function_or_method"], "NotFound")


def test_without_assets_nothing_is_there(wall):
    assert values(run(wall, packed(wall, LOOKING_AROUND, {}), confined(), 1)) == [NOTHING.of(wall)]


HEXED = evaluating("return open('a', 'rb').read().hex()", "return Deno.readFileSync('a').toHex();")


def test_a_copy_that_was_changed_in_the_store_is_never_used(wall, tmp_path, monkeypatch):
    content = uuid.uuid4().bytes
    program = packed(wall, HEXED, {"a": content})
    kept = assets.cache_dir() / "assets" / program.assets[0].sha256
    kept.write_bytes(bytes(len(content)))
    with pytest.raises(SandboxFault, match="changed by somebody"):
        run(wall, program, confined(), 1)
    assert not kept.exists()
    shipped("", {"a": content})  # as the next run does
    assert values(run(wall, program, confined(), 1)) == [content.hex()]


LARGE = Forms(
    "CONTENT = open('large.bin', 'rb').read()\n", "const CONTENT = Deno.readFileSync('large.bin');\n"
) + evaluating(
    "\n    with open('large.bin', 'rb') as file:\n        file.seek(-output, 2)\n        return file.read(2).hex()",
    "return Deno.readFileSync('large.bin').slice(-output).slice(0, 2).toHex();",
)


def test_twenty_megabytes_fit_under_the_default_limits(wall):
    content = random.Random(7).randbytes(1 << 20) * 20
    found = values(run(wall, packed(wall, LARGE, {"large.bin": content}), confined(), 2, 5, 2))
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
ENVIRONMENT = Forms(
    "import os\nLOADED = dict(os.environ)\n", "const LOADED = JSON.stringify(Deno.env.toObject());\n"
) + evaluating(
    "return [os.getenv('GRANTED'), dict(os.environ) == LOADED, sorted(LOADED)]",
    "const now = Deno.env.toObject();\n"
    "  return [Deno.env.get('GRANTED') ?? null, JSON.stringify(now) === LOADED, Object.keys(now).sort()];",
)


def test_granted_values_are_visible_and_nothing_of_the_hosts(wall, monkeypatch):
    monkeypatch.setenv("EVALCELL_TEST_CANARY", "secret")
    program = packed(wall, ENVIRONMENT, {})
    (without,) = values(run(wall, program, confined(), 1))
    granted = values(run(wall, program, confined(environment={"GRANTED": "läßt"}), 1, 2))
    assert without[0] is None
    assert "EVALCELL_TEST_CANARY" not in without[2]
    assert granted == [["läßt", True, sorted([*without[2], "GRANTED"])]] * 2
    if wall.name == "wasm" or language_of(wall) is Language.TYPESCRIPT:
        assert without[2] == []


CHANGING = Forms("import os\n", "") + evaluating(
    "\n    found = os.environ['GRANTED']\n    os.environ['GRANTED'] = 'x'\n    return found",
    "const found = Deno.env.get('GRANTED');\n  Deno.env.toObject().GRANTED = 'x';\n"
    "  Deno.env.get = () => 'x';\n  return found;",
)


def test_a_row_cannot_change_the_values_of_the_next(wall):
    program = packed(wall, CHANGING, {})
    assert values(run(wall, program, confined(environment={"GRANTED": "v"}), 1, 2)) == ["v", "v"]
