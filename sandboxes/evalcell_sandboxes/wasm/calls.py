"""Calls exported functions of a component with as little Python in between as wasmtime's C API allows.

`wasmtime.component.Func` looks up the function's type and converts each value on every call, which costs more than
a small evaluator itself. The guest's exports take strings and one integer and give back a string, so this module
keeps the argument array and the result slot between calls and only fills them in.
"""

import ctypes
from ctypes import byref
from typing import Any

from wasmtime import Store, WasmtimeError, _ffi
from wasmtime.component import ExportIndex, Instance


class _Text(ctypes.Structure):
    """wasmtime's view of a string, with a pointer type that Python bytes can be assigned to."""

    _fields_ = (("size", ctypes.c_size_t), ("data", ctypes.c_char_p))


class Export:
    """One exported function of one instance, which takes the given kinds of arguments and gives back a string."""

    def __init__(
        self, store: Store, instance: Instance, index: ExportIndex, parameters: "tuple[type[bytes | int], ...]"
    ) -> None:
        function = instance.get_func(store, index)
        if function is None:
            raise WasmtimeError("the guest image lacks an export")
        self._function = function
        self._arguments = (_ffi.wasmtime_component_val_t * len(parameters))()
        self._slots = [_slot(value, kind) for value, kind in zip(self._arguments, parameters, strict=True)]
        self._result = _ffi.wasmtime_component_val_t()
        self._result_pointer = byref(self._result)
        self._answer = self._result.of.string
        self._call = (
            byref(function._func),
            store._context(),
            self._arguments,
            len(parameters),
            self._result_pointer,
            1,
        )

    def __call__(self, *arguments: bytes | int) -> bytes:
        """Calls the function. Strings are given and returned as UTF-8, which the caller vouches for.

        Raises:
            WasmtimeError: The call trapped. The instance can never be entered again.

        """
        # wasmtime copies the arguments during the call; `arguments` keeps the bytes alive until then.
        for slot, argument in zip(self._slots, arguments, strict=True):
            if isinstance(argument, bytes):
                slot.size, slot.data = len(argument), argument
            else:
                slot.u64 = argument
        error = _ffi.wasmtime_component_func_call(*self._call)
        if error:
            raise WasmtimeError._from_ptr(error)
        answer = ctypes.string_at(self._answer.data, self._answer.size)
        _ffi.wasmtime_component_val_delete(self._result_pointer)
        return answer


def _slot(value: "_ffi.wasmtime_component_val_t", kind: "type[bytes | int]") -> Any:
    """Where an argument of that kind is written, inside the C value."""
    if kind is int:
        value.kind = _ffi.WASMTIME_COMPONENT_U64
        return value.of
    value.kind = _ffi.WASMTIME_COMPONENT_STRING
    return _Text.from_buffer(value.of.string)
