"""Starting a container takes long, so one is ready to take the place of another that is lost."""

import os
import signal

from boxed import containers_of

from evalcell import datasets, records
from evalcell.engine import engine as engines


def test_a_spare_lane_takes_the_place_of_one_that_is_lost(container_wall, engine_for, rows, monkeypatch):
    monkeypatch.setattr(engines, "_SPARE_SECONDS", 1.0)
    source = "import time\ndef evaluate(output):\n    time.sleep(0.04)\n    return output\n"
    engine = engine_for(source, sandbox="container").engine
    spare, scores = None, []
    with datasets.opened(str(rows([{"output": n} for n in range(150)]))) as dataset:
        for finished in engine.run(dataset):
            scores += [records.decode(line).score for line in finished.rows]
            waiting = [lane for lane in engine._pool.lanes if lane.spare and lane.ready]
            if spare is None and waiting:
                spare = waiting[0].process.pid
                os.kill(engine._pool.working[0].process.pid, signal.SIGKILL)
    assert scores == list(range(150))
    assert spare in [lane.process.pid for lane in engine._pool.working]


def test_a_short_run_starts_no_spare(container_wall, engine_for, rows):
    engine = engine_for("def evaluate(output): return output\n", sandbox="container").engine
    with datasets.opened(str(rows([{"output": n} for n in range(20)]))) as dataset:
        list(engine.run(dataset))
    assert len(engine.lane_pids()) == 1


def test_a_lane_that_waits_notices_that_its_container_is_gone(container_wall, engine, engine_for, rows, monkeypatch):
    monkeypatch.setattr(engines, "_SPARE_SECONDS", 0.5)
    source = "import time\ndef evaluate(output):\n    time.sleep(0.04)\n    return output\n"
    run = engine_for(source, sandbox="container").engine
    removed, noticed, scores = None, False, []
    with datasets.opened(str(rows([{"output": n} for n in range(200)]))) as dataset:
        for finished in run.run(dataset):
            scores += [records.decode(line).score for line in finished.rows]
            waiting = [lane.process.pid for lane in run._pool.lanes if lane.spare and lane.ready]
            if removed is None and waiting:
                removed = waiting[0]
                for container in containers_of(engine, [removed]):
                    engine.api.remove_container(container, force=True)
            noticed = noticed or (removed is not None and removed not in run.lane_pids())
    assert scores == list(range(200))
    assert noticed, "the spare without a container was kept"
