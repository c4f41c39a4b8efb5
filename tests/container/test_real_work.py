"""What evaluators are made of runs in the packed Python, under our list of system calls."""

import io
import json
import subprocess
import sys
import tarfile
import uuid

import pytest

WORK = """
import asyncio, json, multiprocessing, subprocess, sys, threading, warnings
warnings.simplefilter("ignore")
done = {}

from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.metrics.pairwise import cosine_similarity
vectors = HashingVectorizer(n_features=2**10).transform(["one two", "one two", "three"])
done["vectors"] = [round(float(value), 6) for value in cosine_similarity(vectors)[0]]

from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
features, labels = make_classification(200, random_state=0)
done["forest"] = RandomForestClassifier(20, n_jobs=2, random_state=0).fit(features, labels).score(features, labels)

import joblib
done["joblib"] = joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(number) for number in range(-3, 0))
done["joblib threads"] = joblib.Parallel(2, prefer="threads")(joblib.delayed(abs)(number) for number in range(-3, 0))

heard = []
threads = [threading.Thread(target=heard.append, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
done["threads"] = sorted(heard)

done["subprocess"] = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True).stdout

async def slowly():
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(1)", stdout=subprocess.PIPE)
    return [*await asyncio.gather(asyncio.sleep(0, 2), asyncio.to_thread(abs, -3)), (await process.communicate())[0].decode()]
done["asyncio"] = asyncio.run(slowly())

context = multiprocessing.get_context("fork")
reader, writer = context.Pipe(duplex=False)
child = context.Process(target=writer.send, args=("from the child",))
child.start()
done["multiprocessing"] = reader.recv()
child.join()
try:
    context.Queue()
    done["queue"] = "made"
except OSError:
    done["queue"] = "OSError"

print(json.dumps(done))
"""


@pytest.fixture
def with_sklearn(engine, base, contained, tmp_path):
    """An image of the base and scikit-learn, in one layer."""
    install = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "--quiet",
        "--only-binary",
        ":all:",
        "--python",
        sys.executable,
    ]
    subprocess.run([*install, "--target", str(tmp_path / "packages"), "scikit-learn"], check=True)
    packages = io.BytesIO()
    with tarfile.open(fileobj=packages, mode="w") as archive:
        archive.add(tmp_path / "packages", "packages")
    container = contained("", read_only=False)
    try:
        container.put_archive("/usr/local", packages.getvalue())
        image = container.commit("evalcell-test-sklearn", uuid.uuid4().hex)
    finally:
        container.remove(force=True)
    yield image.id
    engine.images.remove(image.id)


def test_scikit_learn_threads_and_processes_work(run, ours, with_sklearn):
    done = json.loads(run(WORK, allowed=ours, image=with_sklearn, environment={"PYTHONPATH": "/usr/local/packages"}))
    assert done.pop("forest") > 0.95
    assert done.pop("queue") == "OSError"  # without /dev/shm there are no semaphores
    assert done == {
        "vectors": [1.0, 1.0, 0.0],
        "joblib": [3, 2, 1],
        "joblib threads": [3, 2, 1],
        "threads": [0, 1, 2, 3, 4, 5, 6, 7],
        "subprocess": "42\n",
        "asyncio": [2, 3, "1\n"],
        "multiprocessing": "from the child",
    }
