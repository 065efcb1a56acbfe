"""Three PostgreSQL servers under Patroni on this machine, each with a vote in its own raft, or in etcd."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from example_project.embedded_programs import programs
from tests.support.commands import is_alive
from tests.support.waiting import until

from ..harness.havoc import descendants

TTL, LOOP_WAIT, RETRY_TIMEOUT = 20, 3, 5
"""Seconds until a leader that does not renew its key is no leader, and between two looks."""
SLOW = 180.0
ETCD = shutil.which("etcd")
PATRONICTL = str(Path(sys.executable).with_name("patronictl"))
AS_SOMEBODY = ["unshare", "--user", "--map-user=65534", "--map-group=65534"] if os.geteuid() == 0 else []
"""PostgreSQL does not run as root. In a namespace of its own, root has another number and its own files."""


class Node:
    """A machine: PostgreSQL, Patroni, and a vote."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.rest, self.vote, self.clients, self.port = (_free_port() for _ in range(4))
        self.is_up = False
        self.etcd: list[str] = []
        """The command of its member of etcd; empty: the vote is that of Patroni's own raft."""
        self._programs: list[subprocess.Popen[bytes]] = []

    @property
    def config(self) -> Path:
        return self.folder / f"{self.name}.yml"

    def start(self) -> None:
        """Start etcd, if it has the vote, and Patroni, which starts PostgreSQL."""
        patroni = [*AS_SOMEBODY, sys.executable, "-m", "patroni", str(self.config)]
        self._programs = [self._run("etcd", self.etcd)] if self.etcd else []
        self._programs.append(self._run("patroni", patroni))
        self.is_up = True

    def _run(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{self.name}-{name}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={"PATH": os.environ["PATH"], "HOME": str(self.folder)},
            )  # fmt: skip

    def pids(self) -> set[int]:
        """Return all processes of the machine."""
        roots = {program.pid for program in self._programs}
        with suppress(OSError, ValueError):
            roots.add(int((self.folder / self.name / "postmaster.pid").read_text().split()[0]))
        return {pid for pid in roots.union(*map(descendants, roots)) if is_alive(pid)}

    def send(self, number: signal.Signals, *, only: str = "") -> None:
        """Send a signal to all processes of the machine, or to those with this text in their command line."""
        for pid in self.pids():
            with suppress(OSError):
                if only in Path(f"/proc/{pid}/cmdline").read_text():
                    os.kill(pid, number)
        self.is_up = number == signal.SIGCONT or (self.is_up and bool(only))

    def kill(self) -> None:
        """Let the machine lose its power."""
        self.send(signal.SIGKILL)
        until(lambda: not self.pids(), what=f"the machine {self.name} is dead")
        for program in self._programs:
            program.wait()


class Cluster:
    """The machines. Each question is put to PostgreSQL itself."""

    def __init__(self, folder: Path, *, is_synchronous: bool, with_etcd: bool) -> None:
        self.is_synchronous = is_synchronous
        self.nodes = [Node(f"node{number}", folder) for number in (1, 2, 3)]
        self._password = secrets.token_hex(16)
        for node in self.nodes:
            if with_etcd:
                node.etcd = self._etcd(node)
            node.config.write_text(json.dumps(self._config(node)))  # JSON is YAML
            node.config.chmod(0o600)

    def start(self) -> None:
        """Start all machines, and wait until there is one leader with two standbys."""
        for node in self.nodes:
            node.start()
        self.whole()

    def address(self) -> dict[str, Any]:
        """Return the keys of an alias in DATABASES that names all servers."""
        return {
            "HOST": ",".join("127.0.0.1" for _ in self.nodes),
            "PORT": ",".join(str(node.port) for node in self.nodes),
            "NAME": "postgres", "USER": "postgres", "PASSWORD": self._password,
            "OPTIONS": {"target_session_attrs": "read-write", "connect_timeout": 3},
        }  # fmt: skip

    def ask(self, node: Node, query: str) -> list[Any]:
        """Return the rows of a query; none if the server does not answer."""
        if not node.is_up:
            return []
        with suppress(psycopg.Error), psycopg.connect(
            host="127.0.0.1", port=node.port, dbname="postgres", user="postgres",
            password=self._password, connect_timeout=2, autocommit=True,
        ) as connection:  # fmt: skip
            return connection.execute(query).fetchall()
        return []

    def leader(self) -> Node | None:
        """Return the server that accepts changes."""
        return next(
            (node for node in self.nodes if self.ask(node, "SELECT pg_is_in_recovery()") == [(False,)]), None
        )

    def other_leader(self, old: Node) -> None:
        """Wait until another server leads."""
        until(lambda: self.leader() not in (old, None), seconds=SLOW, what=f"another leader than {old.name}")

    def whole(self) -> None:
        """Wait until there is a leader with two standbys that stream, one of them synchronous if asked."""
        wanted = "'sync', 'quorum'" if self.is_synchronous else "'sync', 'quorum', 'async'"
        query = (
            "SELECT count(*) FILTER (WHERE state = 'streaming'),"
            f" count(*) FILTER (WHERE sync_state IN ({wanted})) FROM pg_stat_replication"
        )

        def is_whole() -> bool:
            node = self.leader()
            found = self.ask(node, query) if node else []
            return bool(found) and found[0][0] == 2 and found[0][1] >= 1

        until(is_whole, seconds=SLOW, what="a leader and two standbys")

    def switch_over(self) -> None:
        """Let another server lead, in order, as for an update of the leader's machine."""
        leader = self.leader()
        assert leader is not None
        done = subprocess.run(
            [PATRONICTL, "-c", str(leader.config), "switchover", "tests", "--leader",
             leader.name, "--force"],
            capture_output=True, text=True, check=False, timeout=90,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def stop(self) -> None:
        """End everything."""
        for node in self.nodes:
            node.send(signal.SIGKILL)
        for node in self.nodes:
            node.kill()

    def _etcd(self, node: Node) -> list[str]:
        assert ETCD is not None
        members = ",".join(f"{each.name}={_url(each.vote)}" for each in self.nodes)
        clients, vote = _url(node.clients), _url(node.vote)
        return [
            ETCD, "--name", node.name, "--data-dir", str(node.folder / f"{node.name}-etcd"),
            "--listen-client-urls", clients, "--advertise-client-urls", clients,
            "--listen-peer-urls", vote, "--initial-advertise-peer-urls", vote, "--initial-cluster", members,
        ]  # fmt: skip

    def _votes(self, node: Node) -> dict[str, Any]:
        """Return the part of the configuration about what decides who leads."""
        if node.etcd:
            return {"etcd3": {"hosts": [f"127.0.0.1:{each.clients}" for each in self.nodes]}}
        raft = {
            "data_dir": str(node.folder / f"{node.name}-raft"), "self_addr": f"127.0.0.1:{node.vote}",
            "partner_addrs": [f"127.0.0.1:{each.vote}" for each in self.nodes if each is not node],
            "password": self._password,
        }  # fmt: skip
        return {"raft": raft}

    def _config(self, node: Node) -> dict[str, Any]:
        folder, user = node.folder, {"username": "postgres", "password": self._password}
        return {
            "scope": "tests",
            "name": node.name,
            "restapi": {
                "listen": f"127.0.0.1:{node.rest}", "connect_address": f"127.0.0.1:{node.rest}",
                "authentication": user,
            },
            **self._votes(node),
            "bootstrap": {
                "dcs": {
                    "ttl": TTL, "loop_wait": LOOP_WAIT, "retry_timeout": RETRY_TIMEOUT,
                    "maximum_lag_on_failover": 100 * 2**20,
                    "synchronous_mode": self.is_synchronous,
                    "synchronous_mode_strict": self.is_synchronous,
                    "postgresql": {
                        "use_pg_rewind": True,
                        "parameters": {"wal_log_hints": "on", "max_connections": 100},
                    },
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, "data-checksums"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{node.port}", "connect_address": f"127.0.0.1:{node.port}",
                "data_dir": str(folder / node.name), "bin_dir": str(programs()),
                "pgpass": str(folder / f"{node.name}-pgpass"),
                "pg_hba": ["host all all 127.0.0.1/32 scram-sha-256",
                           "host replication all 127.0.0.1/32 scram-sha-256"],
                "authentication": {"superuser": user, "replication": user, "rewind": user},
                "parameters": {"unix_socket_directories": "", "timezone": "UTC"},
            },
        }  # fmt: skip


@contextmanager
def cluster_in(folder: Path, *, is_synchronous: bool, with_etcd: bool) -> Iterator[Cluster]:
    """Run the machines for the block. Their files are deleted, unless the block fails."""
    home = folder / "patroni"
    home.mkdir(parents=True)
    cluster = Cluster(home, is_synchronous=is_synchronous, with_etcd=with_etcd)
    try:
        cluster.start()
        yield cluster
    except BaseException:
        print(f"The files of the servers are in {home}", flush=True)
        raise
    finally:
        cluster.stop()
    shutil.rmtree(home)


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
