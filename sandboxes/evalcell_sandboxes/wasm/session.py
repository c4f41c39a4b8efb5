"""Runs a program in instances of the guest, under deadlines, and decodes what comes back as hostile bytes."""

import binascii
import json
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import msgspec

from evalcell_sandboxes import assets
from evalcell_sandboxes.errors import SandboxFault
from evalcell_sandboxes.outcome import Exceeded, Invalid, Outcome, Returned, Usage
from evalcell_sandboxes.program import Asset, Confinement, Isolation, Program
from evalcell_sandboxes.renewing import RenewingSession
from evalcell_sandboxes.reports import Reports
from evalcell_sandboxes.sandbox import Raw
from evalcell_sandboxes.wasm.guests import Answered, Guest, Report

_ROWS_A_CALL = 512
_RESERVE_BYTES = 32 * 1024**2
"""Memory that is free when a row starts: rows that use no more of it can be undone."""


class WasmSession(RenewingSession):
    """A program loaded into the guest.

    Under `row` isolation the instance is put back after every row to what it was when the module had been executed, or
    replaced by a new one in that state, so that nothing a row did can reach the next. Under `evaluator` isolation one
    instance serves all rows until it traps.
    """

    def __init__(self, guest: Guest, program: Program, confinement: Confinement) -> None:
        super().__init__()
        self._guest = guest
        self._source = program.source.encode()
        self._filename = program.filename
        self._assets = program.assets
        self._environment = confinement.environment
        self._limits = confinement.limits
        self._reports = Reports(confinement.limits)
        self._fresh_rows = confinement.isolation is Isolation.ROW
        self._rows_a_call = 1 if self._fresh_rows else _ROWS_A_CALL
        self._seed_number = confinement.seed
        self._seed_key = confinement.seed.to_bytes(8, "big")
        self._code = ""
        self._loaded = self._execute()
        if self._fresh_rows and isinstance(self._loaded, Returned):
            if self._code:  # once more, from it, as in every later instance: rows in the first are no different
                self._loaded = self._execute()
            self._loaded = self._checked(self._settled(self._loaded))

    def fit(self, rows: Sequence[Raw]) -> Outcome:
        self._fitted_on = b"\n".join(row.replace(b"\n", b" ") for row in rows)
        unspoilt = self._fresh_rows and self._guest.alive and isinstance(self._loaded, Returned)
        if unspoilt:  # no row has left anything, so there is no need to load the module again
            return self._checked(self._fit())
        return self._renew()

    def bursts(self, rows: Sequence[Raw]) -> Iterator[list[Outcome]]:
        done = 0
        while done < len(rows):
            ready = self._ready()
            outcomes: list[Outcome] = [ready]
            if isinstance(ready, Returned):
                outcomes = self._run_some(rows[done : done + self._rows_a_call])
            done += len(outcomes)
            yield outcomes

    def aggregate(self, results: Raw) -> Outcome:
        ready = self._ready() if self._fresh_rows else self._renew()
        if not isinstance(ready, Returned):
            return ready
        outcome = self._call("hook", b"aggregate", results, limit="aggregate_seconds", most=self._limits.result_bytes)
        if self._fresh_rows:
            self._guest.close()
        return outcome

    def _run_some(self, rows: Sequence[Raw]) -> list[Outcome]:
        """Runs rows in one call, and gives the outcomes of those that got one, at least of the first."""
        try:
            return self._outcomes([row.replace(b"\n", b" ") for row in rows])  # a line feed is what is between rows
        finally:
            if self._fresh_rows:  # before the outcome goes out: whoever takes it may never come back for another
                self._guest.restore()

    def _outcomes(self, rows: list[bytes]) -> list[Outcome]:
        answered = self._guest.run(rows, self._seed)
        count = answered.text.count(b"\n")
        if count > len(rows) or not (count or answered.ended):
            usage = self._guest.usage() if self._fresh_rows else Usage()  # of many rows, nobody knows whose it is
            self._guest.close()
            return [Invalid(message="the code made up reports of its own", usage=usage)] * len(rows)
        outcomes = self._read_all(answered, count)
        if answered.ended is not None:
            return [*(outcomes[:-1] if answered.ended_after_the_last else outcomes), answered.ended]
        return outcomes

    def _seed(self, row: bytes) -> int:
        """What randomness in a row comes from. The guest reckons the same for `random`, when it is asked for any."""
        return int.from_bytes(blake2b(row, digest_size=8, key=self._seed_key).digest(), "big")

    def _is_there(self) -> bool:
        return self._guest.alive

    def _load(self) -> Outcome:
        return self._settled(self._execute())

    def _fit(self) -> Outcome:
        fitted = self._call("hook", b"fit", self._fitted_on or b"", limit="fit_seconds")
        return self._settled(fitted, limit="fit_seconds")

    def _abandon(self) -> None:
        self._guest.close()

    def _checked(self, ready: Outcome) -> Outcome:
        """Has rows start from that state, if they can."""
        if self._fresh_rows and isinstance(ready, Returned):
            self._guest.remember()
        return super()._checked(ready)

    def _settled(self, ready: Outcome, limit: str = "load_seconds") -> Outcome:
        """Where rows start fresh, tidies up after what was executed; gives what came of both."""
        if not self._fresh_rows or not isinstance(ready, Returned):
            return ready
        reserve = str(_RESERVE_BYTES).encode()
        settled = self._guest.call("settle", reserve, limit=limit, seed=self._seed_number)
        return ready if isinstance(settled, Report) else settled

    def _execute(self) -> Outcome:
        self._guest.renew()
        for asset in self._assets:
            if (failure := self._ship(asset)) is not None:
                self._guest.close()
                return failure
        outcome = self._call("load", self._source, self._make_settings(), limit="load_seconds")
        if isinstance(outcome, Returned) and not self._code:
            # Compiled code goes back to the guest that made it and is never looked into on this side.
            try:
                self._code = msgspec.json.decode(outcome.value, type=str)
            except msgspec.DecodeError:
                return Invalid(message="the module meddled with the guest that loads it")
        return outcome

    def _ship(self, asset: Asset) -> Outcome | None:
        """Puts a file into the instance; gives why it could not be. Nothing of the program's has run there yet."""
        name, size = asset.name.encode(), str(assets.size_of(asset)).encode()
        for piece in assets.pieces(asset) if size != b"0" else [b""]:
            text = binascii.b2a_base64(piece, newline=False)
            answer = self._guest.call("ship", name, size, text, limit="start_seconds")
            if isinstance(answer, Report) and not answer.text:
                continue
            if isinstance(answer, Exceeded):
                raise SandboxFault(f"A guest did not take in the asset {asset.name!r} in time.")
            most = f"{self._limits.memory_bytes:,} bytes"
            return Exceeded(limit="memory_bytes", message=f"the assets take up more memory than the limit of {most}")
        return None

    def _make_settings(self) -> bytes:
        settings = {
            "filename": self._filename,
            "directory": assets.DIRECTORY if self._assets else "",
            "environment": self._environment,
            "stdout_bytes": self._limits.stdout_bytes,
            "stderr_bytes": self._limits.stderr_bytes,
            "result_bytes": self._limits.result_bytes,
            "answer_bytes": self._guest.answer_bytes,
            "seed": self._seed_number,
            "code": self._code,
        }
        return json.dumps(settings).encode()

    def _call(self, export: str, *arguments: bytes, limit: str, most: int | None = None) -> Outcome:
        answer = self._guest.call(export, *arguments, limit=limit, seed=self._seed_number)
        return self._read(answer, most) if isinstance(answer, Report) else answer

    def _read_all(self, answered: Answered, count: int) -> list[Outcome]:
        """Reads the reports of many rows, each on a line: all at once where all are well-formed."""
        reports = self._reports.decode_lines(answered.text, count)
        missing = len(reports) - len(answered.usages)
        usages = answered.usages + [Usage()] * missing if missing > 0 else answered.usages
        read, most = self._reports.outcome, self._limits.result_bytes
        outcomes = [read(report, usage, most) for report, usage in zip(reports, usages, strict=False)]
        for row, output in answered.outputs.items():
            if row < len(outcomes):
                outcomes[row] = self._reports.with_output(outcomes[row], output)
        return outcomes

    def _read(self, report: Report, most: int | None) -> Outcome:
        """Reads the report of one call."""
        outcome = self._reports.outcome(self._reports.decode(report.text), report.usage, most)
        return outcome if report.output is None else self._reports.with_output(outcome, report.output)
