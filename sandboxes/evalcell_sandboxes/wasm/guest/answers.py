"""A piece of memory in which rows are answered, and which the host reads without calling us.

The host looks at the first word while rows run, to know whose time it is, and writes the second to have us come back
early. What was answered before a call was cut short is still there to be read.
"""

SIZE = 256 * 1024
HEADER = 16

box = bytearray(SIZE)
contents = memoryview(box)  # which also keeps them from ever moving
words = contents.cast("I")
DONE, STOP, USED = range(3)


def place(mark: str) -> int:
    """Writes the mark, by which the host knows the contents, and says where the object lies that points to them."""
    contents[: len(mark)] = mark.encode()
    return id(box)
