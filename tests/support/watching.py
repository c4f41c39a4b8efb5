"""Looks at what any user's process could see of others."""

import os
import threading
import time
from pathlib import Path
from typing import Self


class Watch(threading.Thread):
    """Looks at every process there is, again and again, for what it was called with and what is in its environment.

    The command itself was given the value by its operator. A process that it starts is a copy of it for a moment, until
    it executes something else: as long as it is called as the command is, it counts as that.
    """

    def __init__(self, owner: int, canary: str) -> None:
        super().__init__(daemon=True)
        self._owner, self._canary = owner, canary.encode()
        self.looked, self.seen, self.programs, self.stopped = 0, [], set(), False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped = True
        self.join()

    def has_seen(self, program: str) -> bool:
        """Whether somebody ran it, so that one knows what was looked at."""
        return any(program in command for command in self.programs)

    def run(self) -> None:
        while not self.stopped:
            for process in Path("/proc").iterdir():
                if process.name.isdigit() and int(process.name) not in (self._owner, os.getpid()):
                    self._look_at(process)
            time.sleep(0.005)

    def _look_at(self, process: Path) -> None:
        try:
            if self._canary in (process / "environ").read_bytes() and not self._is_copy(process):
                self.seen.append(str(process / "environ"))
            command = (process / "cmdline").read_bytes()
            if self._canary in command:
                self.seen.append(str(process / "cmdline"))
            self.programs.add(command.replace(b"\0", b" ").decode(errors="replace"))
            self.looked += 1
        except OSError:  # it is gone
            return

    def _is_copy(self, process: Path) -> bool:
        return (process / "cmdline").read_bytes() == Path(f"/proc/{self._owner}/cmdline").read_bytes()
