"""Calls exported functions of a component with as little Python in between as wasmtime's C API allows.

`wasmtime.component.Func` looks up the function's type and converts each value on every call, which costs more than
a small evaluator itself. What crosses between us and the guest is strings only, so this module keeps the argument
array and the result slot between calls and only fills them in.
"""

import ctypes
from ctypes import byref

from wasmtime import Store, WasmtimeError, _ffi
from wasmtime.component import ExportIndex, Instance


class _Text(ctypes.Structure):
    """wasmtime's view of a string, with a pointer type that Python bytes can be assigned to."""

    _fields_ = (("size", ctypes.c_size_t), ("data", ctypes.c_char_p))


class Export:
    """One exported function of one instance. It takes strings, as UTF-8, and gives one back."""

    def __init__(self, store: Store, instance: Instance, index: ExportIndex, parameters: int) -> None:
        function = instance.get_func(store, index)
        if function is None:
            raise WasmtimeError("the guest image lacks an export")
        self._function = function
        self._arguments = (_ffi.wasmtime_component_val_t * parameters)()
        self._slots = [_slot(value) for value in self._arguments]
        self._result = _ffi.wasmtime_component_val_t()
        self._call = (byref(function._func), store._context(), self._arguments, parameters, byref(self._result), 1)

    def __call__(self, *arguments: bytes) -> bytes:
        """Calls the function.

        Raises:
            WasmtimeError: The call trapped. The instance can never be entered again.
            UnicodeDecodeError: An argument is not UTF-8.
        """
        # wasmtime copies the arguments during the call; `arguments` keeps the bytes alive until then.
        for slot, argument in zip(self._slots, arguments, strict=True):
            if not argument.isascii():
                argument.decode()  # on text that is not UTF-8 wasmtime aborts the whole process
            slot.size, slot.data = len(argument), argument
        error = _ffi.wasmtime_component_func_call(*self._call)
        if error:
            raise WasmtimeError._from_ptr(error)
        answer = _text(self._result)
        _ffi.wasmtime_component_val_delete(byref(self._result))
        return answer


def _slot(value: "_ffi.wasmtime_component_val_t") -> _Text:
    """Where a string argument is written, inside the C value."""
    value.kind = _ffi.WASMTIME_COMPONENT_STRING
    return _Text.from_buffer(value.of.string)


def _text(value: "_ffi.wasmtime_component_val_t") -> bytes:
    text = value.of.string
    return ctypes.string_at(text.data, text.size)
