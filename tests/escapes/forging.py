"""How code behind a wall makes up answers: it shares an interpreter with what writes them.

The WebAssembly guest answers rows in a piece of memory that any module can import, and any frame's locals can be written to.
"""

import sys

import pytest

needs_the_box = pytest.mark.skipif(
    sys.platform != "linux", reason="an instance's memory cannot be found here, so rows are not answered in it"
)

SAY = '''
import answers, sys

def of_run():
    """The locals of the guest's function that runs rows."""
    frame = sys._getframe()
    while frame.f_code.co_name != "run" or "arguments" not in frame.f_locals: frame = frame.f_back
    return frame.f_locals

def lead(**names):
    """Leads that function astray."""
    of_run().update(names)

def say(report, done=1):
    """Answers as if a row were done."""
    text = (report.encode("utf-8", "surrogatepass") if isinstance(report, str) else report) + b"\\n"
    at = answers.words[answers.USED]
    answers.box[at : at + len(text)] = text
    answers.words[answers.USED] = at + len(text)
    answers.words[answers.DONE] += done
    lead(at=at + len(text))

def silence():
    """Has the guest say nothing of its own from here on."""
    lead(words=[0] * 4, contents=bytearray(answers.SIZE))
'''

SAY_IN_A_CONTAINER = '''
import os, stat, struct

def say(report, done=1):
    """Answers as if a row were done, wherever somebody may listen."""
    text = report.encode("utf-8", "surrogatepass") if isinstance(report, str) else report
    for descriptor in range(3, 256):
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, struct.pack("!BddQIII", 0, 0.0, 0.0, 0, len(text), 0, 0) + text)
        except OSError: pass
'''
