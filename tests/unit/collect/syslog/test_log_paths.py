"""Tests of the log files that an agent may read: in folders that others can write to, a matching name is not enough."""

import os
import socket
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from tests.unit.collect.log_node import Node, append

from jobmeter.collect.syslog import opening
from jobmeter.collect.syslog.opening import FileRefusedError, open_trusted
from jobmeter.collect.syslog.patterns import LogPattern, MatchBudget

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of several users")
ALICE, BOB = 61_234, 61_235


class Tree:
    """Files, folders and links of several users below one folder that every user may enter."""

    def __init__(self, root):
        self.root = root
        self.root.chmod(0o755)

    def folder(self, name, owner=0, mode=0o755):
        path = self.root / name
        path.mkdir(exist_ok=True)
        os.chown(path, owner, owner)
        path.chmod(mode)
        return path

    def file(self, name, owner=0, text="secret"):
        path = self.root / name
        append(path, text)
        os.chown(path, owner, owner)
        path.chmod(0o600)
        return path

    def link(self, name, target, owner=0):
        path = self.root / name
        path.symlink_to(target)
        os.lchown(path, owner, owner)
        return path

    def hard_link(self, name, target):
        path = self.root / name
        path.hardlink_to(target)
        return path


@pytest.fixture
def tree():
    with tempfile.TemporaryDirectory() as folder:
        yield Tree(Path(folder))


def own_file(tree):
    tree.folder("logs", ALICE)
    return tree.file("logs/a.log", ALICE)


def file_of_root_in_a_user_s_folder(tree):
    tree.folder("logs", ALICE)
    path = tree.file("logs/slurmd.log")
    path.chmod(0o644)
    return path


def links_of_kubernetes(tree):
    tree.folder("containers")
    tree.folder("pods")
    tree.file("pods/0.log")
    tree.link("between", "pods")
    return tree.link("containers/a.log", tree.root / "between" / "0.log")


def link_to_the_user_s_own_file(tree):
    tree.folder("logs", ALICE)
    tree.file("logs/run-7", ALICE)
    return tree.link("logs/current.log", "run-7", ALICE)


def link_of_root_into_a_user_s_folder(tree):
    tree.folder("home", ALICE)
    tree.file("home/a.log", ALICE)
    tree.link("alice", "home")
    return tree.root / "alice" / "a.log"


def folder_that_is_a_user_s_link_to_their_own(tree):
    tree.folder("logs", ALICE)
    tree.folder("data", ALICE)
    tree.file("data/a.log", ALICE)
    tree.link("logs/here", "../data", ALICE)
    return tree.root / "logs" / "here" / "a.log"


def hard_link_in_a_folder_of_root(tree):
    tree.file("b.log")
    return tree.hard_link("a.log", tree.root / "b.log")


def hard_link_of_the_user_s_own_file(tree):
    tree.folder("logs", ALICE)
    return tree.hard_link("logs/a.log", tree.file("logs/b.log", ALICE))


def file_in_a_shared_folder(tree):
    tree.folder("shared", mode=0o1777)
    return tree.file("shared/a.log", ALICE)


def file_in_a_folder_of_a_group(tree):
    """Create a file in a folder like Ubuntu's /var/log, whose group is the syslog daemon's."""
    tree.folder("logs", mode=0o775)
    return tree.file("logs/syslog.log", BOB)


def through_proc(tree):
    return Path("/proc/self/root", *tree.file("a.log").parts[1:])


READ = [
    own_file,
    file_of_root_in_a_user_s_folder,
    links_of_kubernetes,
    link_to_the_user_s_own_file,
    link_of_root_into_a_user_s_folder,
    folder_that_is_a_user_s_link_to_their_own,
    hard_link_in_a_folder_of_root,
    hard_link_of_the_user_s_own_file,
    file_in_a_shared_folder,
    file_in_a_folder_of_a_group,
    through_proc,
]


def link_to_a_file_of_root(tree):
    tree.folder("logs", ALICE)
    tree.file("secret")
    return tree.link("logs/a.log", "../secret", ALICE)


def link_to_a_file_of_another_user(tree):
    tree.folder("logs", ALICE)
    return tree.link("logs/a.log", tree.file("secret", BOB), ALICE)


def link_of_a_user_in_a_shared_folder(tree):
    tree.folder("shared", mode=0o1777)
    return tree.link("shared/a.log", tree.file("secret"), ALICE)


def link_over_a_link_of_root(tree):
    tree.folder("logs", ALICE)
    tree.link("official", tree.file("secret"))
    return tree.link("logs/a.log", "../official", ALICE)


def link_of_root_over_a_link_of_a_user(tree):
    tree.folder("home", ALICE)
    tree.link("home/a.log", tree.file("secret"), ALICE)
    return tree.link("a.log", "home/a.log")


def folder_that_is_a_user_s_link_to_root_s(tree):
    tree.folder("logs", ALICE)
    tree.folder("private")
    tree.file("private/a.log")
    tree.link("logs/here", tree.root / "private", ALICE)
    return tree.root / "logs" / "here" / "a.log"


def parent_folder_that_is_a_user_s_link(tree):
    tree.folder("home", ALICE)
    tree.folder("private")
    tree.folder("private/logs")
    tree.file("private/logs/a.log")
    tree.link("home/app", "../private", ALICE)
    return tree.root / "home" / "app" / "logs" / "a.log"


def file_of_root_that_a_user_may_have_moved(tree):
    tree.folder("logs", ALICE)
    return tree.file("logs/a.log")


def file_of_root_that_anybody_may_have_moved(tree):
    tree.folder("shared", mode=0o777)
    return tree.file("shared/a.log")


def hard_link_to_a_file_of_root(tree):
    tree.folder("logs", ALICE)
    return tree.hard_link("logs/a.log", tree.file("secret"))


def hard_link_to_a_file_of_another_user(tree):
    tree.folder("logs", ALICE)
    return tree.hard_link("logs/a.log", tree.file("secret", BOB))


def hard_link_in_a_shared_folder(tree):
    tree.folder("shared", mode=0o1777)
    return tree.hard_link("shared/a.log", tree.file("secret"))


def hard_link_in_a_folder_of_a_group(tree):
    tree.folder("shared", mode=0o775)
    return tree.hard_link("shared/a.log", tree.file("secret"))


def hard_link_to_a_link_of_root(tree):
    tree.folder("logs", ALICE)
    link = tree.link("official", tree.file("secret"))
    os.link(link, tree.root / "logs" / "a.log", follow_symlinks=False)
    return tree.root / "logs" / "a.log"


def pipe(tree):
    os.mkfifo(tree.root / "a.log")
    return tree.root / "a.log"


def device(tree):
    os.mknod(tree.root / "a.log", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    return tree.root / "a.log"


def link_to_a_device(tree):
    return tree.link("a.log", "/dev/zero")


def unix_socket(tree):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tree.root / "a.log"))
    return tree.root / "a.log"


def circle(tree):
    tree.link("b.log", "a.log")
    return tree.link("a.log", "b.log")


def link_to_nothing(tree):
    return tree.link("a.log", "none", ALICE)


def own_environment_of_the_agent(tree):
    tree.folder("logs", ALICE)
    return tree.link("logs/a.log", "/proc/self/environ", ALICE)


NOT_READ = [
    link_to_a_file_of_root,
    link_to_a_file_of_another_user,
    link_of_a_user_in_a_shared_folder,
    link_over_a_link_of_root,
    link_of_root_over_a_link_of_a_user,
    folder_that_is_a_user_s_link_to_root_s,
    parent_folder_that_is_a_user_s_link,
    file_of_root_that_a_user_may_have_moved,
    file_of_root_that_anybody_may_have_moved,
    hard_link_to_a_file_of_root,
    hard_link_to_a_file_of_another_user,
    hard_link_in_a_shared_folder,
    hard_link_in_a_folder_of_a_group,
    hard_link_to_a_link_of_root,
    pipe,
    device,
    link_to_a_device,
    unix_socket,
    circle,
    link_to_nothing,
    own_environment_of_the_agent,
]


def started(tree, tmp_path):
    """Return an agent that reads everything below the tree, and has scanned it while it was empty."""
    patterns = [tree.root / "*.log", tree.root / "*/*.log", tree.root / "*/*/*.log", tree.root / "*/*/*/*.log"]
    node = Node(tmp_path, patterns)
    assert node.rounds() == []
    return node


@pytest.mark.parametrize("make", READ)
def test_what_its_users_mean_to_be_read_is_read(tree, tmp_path, make):
    path = make(tree)
    os.close(open_trusted(path))
    if "proc" in path.parts:
        return
    path.rename(path.with_name("other"))
    node = started(tree, tmp_path)
    path.with_name("other").rename(path)
    assert set(node.texts(24)) == {"secret"}


@pytest.mark.parametrize("make", NOT_READ)
def test_what_somebody_else_put_there_is_not_read(tree, tmp_path, make, caplog):
    node = started(tree, tmp_path)
    path = make(tree)
    with pytest.raises(OSError):  # noqa: PT011 - of several kinds, each with its reason
        open_trusted(path)
    found = [line for line in node.rounds(24) if line.stream == f"file:{path}"]
    assert found == []
    assert node.watch.lost == 0
    if make not in {link_to_nothing, circle, pipe, device, link_to_a_device, unix_socket}:
        assert f"the log file '{path}' is not read: " in caplog.text
    # A restart with the file in place does not read it either.
    node.start()
    assert [line for line in node.rounds(24) if line.stream == f"file:{path}"] == []


@pytest.mark.parametrize("make", [link_to_a_file_of_root, hard_link_to_a_file_of_root, pipe])
def test_a_log_that_is_replaced_by_what_may_not_be_read_ends(tree, tmp_path, make):
    node = started(tree, tmp_path)
    tree.folder("logs", ALICE)
    place = tree.root / ("a.log" if make is pipe else "logs/a.log")
    append(place, "one")
    os.chown(place, ALICE, ALICE)
    assert node.texts(24) == ["one"]
    place.unlink()
    make(tree)
    assert node.texts(48) == []
    place.unlink()
    append(place, "two")
    assert node.texts(300) == ["two"]


@pytest.mark.parametrize("make", [link_to_a_file_of_root, hard_link_to_a_file_of_root])
def test_a_rotated_file_is_no_way_around(tree, tmp_path, make):
    node = started(tree, tmp_path)
    tree.folder("logs", ALICE)
    own = tree.root / "logs" / "a.log"
    append(own, "one")
    assert node.texts(24) == ["one"]
    (tree.root / "logs" / "a.log").unlink()
    make(tree).rename(tree.root / "logs" / "a.log.1")
    append(tree.root / "logs" / "a.log", "two")
    assert node.texts(48) == ["two"]


def test_a_path_that_is_exchanged_all_the_time_never_leads_to_the_secret(tree):
    tree.folder("logs", ALICE)
    secret, own = tree.file("secret"), tree.file("logs/own", ALICE, "own")
    place, spare = tree.root / "logs" / "a.log", tree.root / "logs" / "spare"
    stopping = Event()

    def exchange():
        while not stopping.is_set():
            for target in (secret, own):
                spare.symlink_to(target)
                os.lchown(spare, ALICE, ALICE)
                spare.replace(place)
            spare.hardlink_to(secret)
            spare.replace(place)

    attacker = Thread(target=exchange)
    attacker.start()
    got: list[bytes] = []
    try:
        while len(got) < 200:
            try:
                descriptor = open_trusted(place)
            except OSError:
                continue
            got.append(os.read(descriptor, 100))
            os.close(descriptor)
    finally:
        stopping.set()
        attacker.join()
    assert set(got) == {b"own\n"}


@contextmanager
def running_as(user):
    os.setegid(user)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def test_an_agent_that_is_not_root_follows_links_of_root_and_its_own(tree):
    tree.folder("pods")
    tree.folder("containers")
    tree.file("pods/0.log").chmod(0o644)
    official = tree.link("containers/a.log", "../pods/0.log")
    own = tree.link("own.log", "pods/0.log", ALICE)
    foreign = tree.link("foreign.log", "pods/0.log", BOB)
    with running_as(ALICE):
        for path in (official, own):
            os.close(open_trusted(path))
        with pytest.raises(FileRefusedError, match=f"user {BOB} leads to a file of user 0"):
            open_trusted(foreign)
        with pytest.raises(PermissionError):
            open_trusted(Path("/etc/shadow"))


def test_nothing_stays_open_whether_a_file_is_read_or_not(tree):
    paths = [
        make(Tree(tree.folder(f"{at}"))) for at, make in enumerate((own_file, link_to_a_file_of_root, circle, pipe))
    ]
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in paths * 3:
        try:
            os.close(open_trusted(path))
        except OSError:
            continue
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_links_in_circles_do_not_hold_up_the_search_for_files(tree):
    folder = tree.folder("logs", ALICE)
    for name in ("one", "two", "three"):
        tree.link(f"logs/{name}", ".", ALICE)
    tree.file("logs/a.log", ALICE)
    pattern = LogPattern(str(tree.root / "**" / "*.log"))
    assert list(pattern.list_directories(MatchBudget())) == [str(tree.root), str(folder)]


def test_the_names_that_are_looked_at_have_a_limit(tree):
    for at in range(50):
        tree.folder(f"{at:02}")
    pattern = LogPattern(str(tree.root / "*" / "*.log"))
    assert len(list(pattern.list_directories(MatchBudget(10)))) <= 10


def test_warnings_have_a_limit(tree, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(opening, "_MOST_WARNINGS", 3)
    tree.folder("logs", ALICE)
    secret = tree.file("secret")
    node = started(tree, tmp_path)
    for at in range(9):
        tree.link(f"logs/{at}.log", secret, ALICE)
    assert node.rounds(24) == []
    assert caplog.text.count("is not read") == 3
    assert "further files are not logged" in caplog.text
