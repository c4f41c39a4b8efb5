"""Calls exported functions of a component with as little Python in between as wasmtime's C API allows.

`wasmtime.component.Func` looks up the function's type and converts each value on every call, which costs more than
a small evaluator itself. The guest's exports take strings and one integer and give back a string, so this module
keeps the argument array and the result slot between calls and only fills them in.
"""

import ctypes
from ctypes import byref

from wasmtime import Store, WasmtimeError, _ffi
from wasmtime.component import ExportIndex, Instance

_BYTES = ctypes.POINTER(ctypes.c_uint8)


class Export:
    """One exported function of one instance, `(string | u64, ...) -> string`."""

    def __init__(self, store: Store, instance: Instance, index: ExportIndex, parameters: int) -> None:
        function = instance.get_func(store, index)
        if function is None:
            raise WasmtimeError("the guest image lacks an export")
        self._function = function
        self._context = store._context()
        self._arguments = (_ffi.wasmtime_component_val_t * parameters)()
        self._result = _ffi.wasmtime_component_val_t()

    def __call__(self, *arguments: bytes | int) -> bytes:
        """Calls the function. Strings are given and returned as UTF-8, which the caller vouches for.

        Raises:
            WasmtimeError: The call trapped. The instance can never be entered again.
        """
        # wasmtime copies the arguments during the call; `arguments` keeps the bytes alive until then.
        for slot, argument in zip(self._arguments, arguments, strict=True):
            if isinstance(argument, int):
                slot.kind = _ffi.WASMTIME_COMPONENT_U64
                slot.of.u64 = argument
            else:
                slot.kind = _ffi.WASMTIME_COMPONENT_STRING
                slot.of.string.size = len(argument)
                slot.of.string.data = ctypes.cast(ctypes.c_char_p(argument), _BYTES)
        error = _ffi.wasmtime_component_func_call(
            byref(self._function._func), self._context, self._arguments, len(arguments), byref(self._result), 1
        )
        if error:
            raise WasmtimeError._from_ptr(error)
        text = self._result.of.string
        answer = ctypes.string_at(text.data, text.size)
        _ffi.wasmtime_component_val_delete(byref(self._result))
        return answer
