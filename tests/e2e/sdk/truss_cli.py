"""Runs in the environment of `truss`: each line of stdin is a JSON list of command arguments.

Every command runs in its own process, forked after the program is loaded, because loading takes most of the time.
``{"environment": {...}, "arguments": [...]}`` adds variables. The script prints the output and the exit status as JSON.
"""

import json
import os
import sys
import tempfile
import traceback

from truss.cli.cli import truss_cli


def _run(ask, out, err):
    os.environ.update(ask.get("environment", {}))
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    status = 0
    try:
        truss_cli(ask["arguments"])
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter would end
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _answer(ask):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            _run(ask, out, err)
        _, waited = os.waitpid(child, 0)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
        return {"status": os.waitstatus_to_exitcode(waited), "out": texts[0], "err": texts[1]}


for line in sys.stdin:
    print(json.dumps(_answer(json.loads(line))), flush=True)
