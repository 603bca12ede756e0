"""Program of several ranks that sum numbers over sockets in a loop, in which one rank can fail.

``python -m tests.support.ranks PORT-FILE FAULT RANK STEPS`` reads the own rank from RANK and WORLD_SIZE in the
environment, which `jobmeter run` sets. Rank RANK of the command line fails after STEPS steps, and prints that it does.
"""

import os
import select
import signal
import socket
import sys
import threading
from pathlib import Path


def receive(peer: socket.socket) -> float:
    """Receive one number."""
    data = b""
    while len(data) < 16:
        part = peer.recv(16 - len(data))
        if not part:
            select.select([], [], [], 3600)  # the peer has ended: wait for ever, like a library that does not notice
        data += part
    return float(data)


def send(peer: socket.socket, number: float) -> None:
    """Send one number."""
    peer.sendall(f"{number:16.6f}".encode())


def all_reduce(peers: list[socket.socket], root: bool, number: float) -> float:
    """Sum the numbers of all ranks: the first rank adds them up and sends the sum."""
    if root:
        total = number + sum(receive(peer) for peer in peers)
        for peer in peers:
            send(peer, total)
        return total
    send(peers[0], number)
    return receive(peers[0])


def sleeps() -> None:
    """Sleep for a long time."""
    select.select([], [], [], 3600)


def locks() -> None:
    """Take two locks in one order while another thread takes them in the opposite order."""
    first, second = threading.Lock(), threading.Lock()
    both = threading.Barrier(2)

    def other_way() -> None:
        with second:
            both.wait()
            with first:
                pass

    threading.Thread(target=other_way, daemon=True, name="other way").start()
    with first:
        both.wait()
        with second:
            pass


def reads_pipe() -> None:
    """Open a pipe that has no writer."""
    path = Path(sys.argv[1]).with_suffix(".pipe")
    os.mkfifo(path)
    path.read_bytes()


def stops() -> None:
    """Stop this process with a signal, like a debugger or an operator."""
    os.kill(os.getpid(), signal.SIGSTOP)


def dies() -> None:
    """End by a signal that allows no message."""
    os.kill(os.getpid(), signal.SIGKILL)


FAULTS = {"sleep": sleeps, "locks": locks, "pipe": reads_pipe, "stop": stops, "die": dies, "none": lambda: None}


def connect(port_file: Path, rank: int, size: int) -> list[socket.socket]:
    """Connect every rank with the first rank."""
    if rank == 0:
        listener = socket.create_server(("127.0.0.1", 0))
        port_file.with_suffix(".new").write_text(str(listener.getsockname()[1]))
        port_file.with_suffix(".new").rename(port_file)
        return [listener.accept()[0] for _ in range(size - 1)]
    while not port_file.exists():
        select.select([], [], [], 0.02)
    return [socket.create_connection(("127.0.0.1", int(port_file.read_text())))]


def main() -> None:
    """Work until the fault; without a fault work for ever."""
    port_file, fault, bad, steps = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    peers = connect(port_file, rank, size)
    step = 0
    while True:
        step += 1
        if step > steps and rank == bad:
            port_file.with_suffix(".fault").touch()
            FAULTS[fault]()
        all_reduce(peers, rank == 0, float(rank))
        sum(range(1_000_000))


if __name__ == "__main__":
    main()
