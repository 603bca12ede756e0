import sys

from benchmarks import processes

SERVER = """
import http.server, sys, measured

class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Ready).serve_forever()
"""


def test_what_is_measured_has_its_modules_compiled_whatever_the_surroundings_say(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    (tmp_path / "measured.py").write_text("")
    port = processes.free_port()
    command = [sys.executable, "-c", SERVER, str(port)]
    process, _ = processes.start(command, port, "/", tmp_path / "log", {"PYTHONPATH": str(tmp_path)})
    processes.stop(process)
    assert list((tmp_path / "__pycache__").glob("measured.*.pyc"))
