"""What the tests of the built `flashmask` share. The path of the binary is the last argument of the test."""
import os
import subprocess
import sys
import tempfile

BINARY = os.path.abspath(sys.argv.pop(1))
SMALL = ["--heads", "4:2", "--head-dim", "16", "--threads", "2"]


def flashmask(*arguments, stdin="", environment=None):
    """(exit code, standard output, standard error), run in an empty directory: no file of the tree is needed."""
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run([BINARY, *arguments], input=stdin, capture_output=True, text=True, cwd=directory,
                              env={**os.environ, **(environment or {})}, timeout=300)
    return done.returncode, done.stdout, done.stderr
