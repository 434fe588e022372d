#!/usr/bin/env python3
"""Verifies a hotcell record: a database file or an export, against an anchor if there is one.

    verify.py [--anchor FILE] FILE

Written from docs/record-format.md alone; needs Python 3.9 or later and nothing else.
Exit status: 0 sound, 1 broken, 2 unproven (something is missing that would prove it, or wrong usage).
"""

import hashlib
import json
import re
import sqlite3
import struct
import sys
from pathlib import Path

SOUND, BROKEN, UNPROVEN = 0, 1, 2

KINDS = """opened intent outcome called denied review recovered policy_changed bearer_changed artifact_added
    artifact_changed pruned checkpoint_missed note""".split()
DOORS = "cli library socket rest mcp kafka agent plan callback".split()
DECISIONS = "allow review deny".split()
STATUSES = """success failure error timeout oom limit killed cancelled blocked review invalid
    circuit_open unknown""".split()
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}", re.ASCII)
NUMBER = re.compile(r"0|[1-9][0-9]{0,19}", re.ASCII)
MARK = "hotcell-checkpoint 1 "
CHECKPOINT = re.compile(
    r"(hotcell-checkpoint 1 home=([0-9a-f]{32}) seq=(0|[1-9][0-9]*) hash=([0-9a-f]{64})"
    r" count=(0|[1-9][0-9]*) time=(0|-?[1-9][0-9]*) prev=([0-9a-f]{64}) key=([0-9a-f]{64}))"
    r" sig=([0-9a-f]{128})",
    re.ASCII,
)

U64 = range(0, 2**64)
I64 = range(-(2**63), 2**63)


class Broken(Exception):
    """What is wrong."""


class Missing(Exception):
    """What would be needed."""


# Fields: how a value is checked and encoded.

def number(value, limits=U64):
    if type(value) is not int or value not in limits:
        raise Broken("is not a number of its range")
    return struct.pack("<q" if limits is I64 else "<Q", value)


def time(value):
    return number(value, I64)


def blob(length):
    def encode(value):
        if type(value) is not bytes or len(value) != length:
            raise Broken(f"is not {length} bytes")
        return value
    return encode


def text(value):
    if type(value) is not str:
        raise Broken("is not a text")
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError:
        raise Broken("is not a text of Unicode") from None


def name(value):
    if type(value) is not str or not NAME.fullmatch(value):
        raise Broken("is not a name")
    return value.encode()


def one_of(values):
    def encode(value):
        if type(value) is not str or value not in values:
            raise Broken("is none of the words that it can be")
        return value.encode()
    return encode


def texts(value):
    items = [text(item) for item in value]
    return struct.pack("<Q", len(items)) + b"".join(struct.pack("<Q", len(i)) + i for i in items)


OPTIONAL, ALWAYS = True, False
PAYLOAD = [("digest", blob(32)), ("length", number), ("head", blob(32)), ("media", text)]
FIELDS = [
    ("seq", number, ALWAYS), ("version", number, ALWAYS), ("id", blob(16), ALWAYS),
    ("time", time, ALWAYS), ("kind", one_of(KINDS), ALWAYS), ("call", blob(16), OPTIONAL),
    ("parent", blob(16), OPTIONAL), ("operation", text, OPTIONAL), ("tool", text, OPTIONAL),
    ("tenant", name, ALWAYS), ("subject", name, ALWAYS), ("door", one_of(DOORS), ALWAYS),
    ("mode", text, OPTIONAL), ("state", text, OPTIONAL),
    ("decision", one_of(DECISIONS), OPTIONAL), ("rules", texts, ALWAYS),
    ("bearer", text, OPTIONAL), ("reason", text, OPTIONAL),
    ("status", one_of(STATUSES), OPTIONAL),
    *[(f"input_{part}", encode, OPTIONAL) for part, encode in PAYLOAD],
    *[(f"output_{part}", encode, OPTIONAL) for part, encode in PAYLOAD],
    ("duration_ns", number, OPTIONAL), ("sandbox", text, OPTIONAL), ("request", text, OPTIONAL),
    ("owner", blob(16), ALWAYS),
]
COLUMNS = [field for field, _, _ in FIELDS] + ["prev", "hash"]


def encode_event(event):
    """The bytes that are hashed."""
    out = [b"hotcell event 1\n", event["prev"]]
    for field, encode, is_optional in FIELDS:
        value = event[field]
        if value is None and is_optional:
            out.append(b"\0")
            continue
        try:
            value = encode(value)
        except Broken as error:
            raise Broken(f"{field} {error}") from None
        out.append(b"\1" + struct.pack("<Q", len(value)) + value)
    return b"".join(out)


def check_columns(event):
    for field in ("prev", "hash"):
        if type(event[field]) is not bytes or len(event[field]) != 32:
            raise Broken(f"{field} is not 32 bytes")
    for payload in ("input", "output"):
        parts = [event[f"{payload}_{part}"] for part in ("digest", "length", "head", "media")]
        needed = [parts[0], parts[1], parts[3]]
        if any(part is None for part in needed) and any(part is not None for part in parts):
            raise Broken(f"{payload} is there in part")


def unlist(value):
    """The items of a list as the database has it."""
    if type(value) is not bytes:
        raise Broken("rules is not a list")
    items, at = [], 8
    if len(value) < 8:
        raise Broken("rules is not a list")
    (count,) = struct.unpack_from("<Q", value, 0)
    while len(items) < count:
        if at + 8 > len(value):
            raise Broken("rules is not a list")
        (length,) = struct.unpack_from("<Q", value, at)
        item = value[at + 8 : at + 8 + length]
        if len(item) != length:
            raise Broken("rules is not a list")
        try:
            items.append(item.decode("utf-8"))
        except UnicodeDecodeError:
            raise Broken("rules is not a list of texts") from None
        at += 8 + length
    if at != len(value):
        raise Broken("rules is not a list")
    return items


def genesis(home):
    return hashlib.sha256(b"hotcell home 1\n" + home).digest()


class Chain:
    """Takes one event after the other."""

    def __init__(self, home):
        self.last, self.hash = 0, genesis(home)
        self.hashes, self.open = {}, {}
        # Up to which events contents were pruned: as it was told, and where it was not.
        self.pruned, self.untold = 0, 0

    def take(self, event):
        seq = self.last + 1
        try:
            self.check(seq, event)
        except Broken as error:
            raise Broken(f"event {seq}: {error}") from None
        self.last, self.hash = seq, event["hash"]
        self.hashes[seq] = event["hash"]

    def check(self, seq, event):
        check_columns(event)
        if type(event["version"]) is int and event["version"] in U64 and event["version"] != 1:
            raise Broken("version is not known")
        encoded = encode_event(event)
        if event["seq"] != seq:
            raise Broken("seq: it is missing")
        if event["prev"] != self.hash:
            raise Broken("prev: it does not follow the event before it")
        if hashlib.sha256(encoded).digest() != event["hash"]:
            raise Broken("hash: a field is not what was hashed")
        kind, call = event["kind"], event["call"]
        if (kind == "opened") != (seq == 1):
            raise Broken("kind: the first event, and only the first, opens a home")
        if kind == "pruned":
            self.prune(seq, event["state"])
        if kind in ("intent", "outcome", "recovered"):
            if call is None:
                raise Broken("call: there is none")
            if kind == "intent":
                if call in self.open:
                    raise Broken("call: it is open already")
                self.open[call] = seq
            elif self.open.pop(call, None) is None:
                raise Broken("call: it is not open")

    def prune(self, seq, state):
        if state is None:
            self.untold = seq - 1
        elif NUMBER.fullmatch(state) and int(state) < seq:
            self.pruned = max(self.pruned, int(state))
        else:
            raise Broken("state: it is not the number of an event before it")


# Ed25519 (RFC 8032), for verification only.

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = pow(2, (P - 1) // 4, P)


def add(a, b):
    aa, bb = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    cc, dd = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = bb - aa, dd - cc, dd + cc, bb + aa
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(n, point):
    result = (0, 1, 1, 0)
    while n:
        if n & 1:
            result = add(result, point)
        point, n = add(point, point), n >> 1
    return result


def is_equal(a, b):
    return (a[0] * b[2] - b[0] * a[2]) % P == 0 and (a[1] * b[2] - b[1] * a[2]) % P == 0


def decompress(data):
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    if y >= P:
        return None
    xx = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(xx, (P + 3) // 8, P)
    if (x * x - xx) % P:
        x = x * ROOT % P
    if (x * x - xx) % P or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = P - x
    return x, y, 1, x * y % P


BASE = decompress((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def is_small(point):
    return is_equal(times(8, point), (0, 1, 1, 0))


def is_signed(key, message, signature):
    a, r = decompress(key), decompress(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= ORDER or is_small(a) or is_small(r):
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % ORDER
    return is_equal(times(s, BASE), add(r, times(h, a)))


# Checkpoints.

class Checkpoint:
    def __init__(self, line):
        match = CHECKPOINT.fullmatch(line)
        if not match:
            raise ValueError("not a checkpoint")
        statement, home, seq, digest, count, when, prev, key, signature = match.groups()
        self.line, self.home, self.key = line, bytes.fromhex(home), bytes.fromhex(key)
        self.seq, self.count, self.time = int(seq), int(count), int(when)
        if self.seq not in U64 or self.count not in U64 or self.time not in I64:
            raise ValueError("not a checkpoint")
        self.hash, self.prev = bytes.fromhex(digest), bytes.fromhex(prev)
        self.message = b"hotcell checkpoint 1\n" + statement.encode()
        self.signature = bytes.fromhex(signature)

    def check(self, chain, home, key):
        """Whether it is signed and true."""
        where = f"checkpoint of event {self.seq}"
        if not is_signed(self.key, self.message, self.signature):
            raise Broken(f"{where}: its signature is wrong")
        if self.home != home:
            raise Broken(f"{where}: it is of another home")
        if key is not None and self.key != key:
            raise Broken(f"{where}: another key signed it")
        if self.count != self.seq:
            raise Broken(f"{where}: it counts other events than there are")
        if self.seq > chain.last or self.seq < 1:
            raise Broken(f"{where}: that event is not there: the end was cut off, or this is an old copy")
        if chain.hashes[self.seq] != self.hash:
            raise Broken(f"{where}: the history was rewritten")


def check_checkpoints(chain, home, lines):
    prev, key = genesis(home), None
    for line in lines:
        try:
            checkpoint = Checkpoint(line)
        except (ValueError, TypeError):
            raise Broken("a checkpoint of the record is not one") from None
        if checkpoint.prev != prev:
            raise Broken(f"checkpoint of event {checkpoint.seq}: it does not follow the one before it")
        checkpoint.check(chain, home, key)
        prev, key = hashlib.sha256(line.encode()).digest(), checkpoint.key
    return key


def check_anchor(path, chain, home, lines, key, said):
    known, covered, others, halves = set(lines), 0, 0, 0
    try:
        anchor = open(path, "rb")
    except OSError as error:
        raise Missing(f"the anchor: {error.strerror}") from None
    with anchor:
        for line in anchor:
            line = line.decode("utf-8", "replace")
            line = line[:-1] if line.endswith("\n") else line
            at = line.rfind(MARK)
            if at < 0:
                continue
            try:
                checkpoint = Checkpoint(line[at:])
            except ValueError:
                halves += 1
                continue
            if checkpoint.home != home:
                others += 1
                continue
            try:
                checkpoint.check(chain, home, key)
                if checkpoint.line not in known:
                    raise Broken(f"checkpoint of event {checkpoint.seq}: the record does not have it")
            except Broken as error:
                raise Broken(f"anchor: {error}") from None
            covered = max(covered, checkpoint.seq)
    said(f"checked: the anchor; {others} checkpoints of other homes, {halves} half lines passed over")
    if covered == 0:
        raise Missing("the anchor: it has no checkpoint of this home")
    return covered


# The two forms of a record. Each gives the chain, the home's id and the lines of its checkpoints.

def read_database(path, said):
    if not path.is_file():
        raise Missing("the database: it is not a file")
    try:
        open(path, "rb").close()
        connection, before = connect(path)
    except (OSError, sqlite3.Error) as error:
        raise Missing(f"the database: {error}") from None
    try:
        return read_tables(connection, said)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if is_unreadable(error):
            raise Missing(f"the database: {error}") from None
        raise Broken(f"database: {error}") from None
    finally:
        connection.close()
        if before is not None and without_log(path) != before:
            raise Missing("the database: it was written meanwhile, and cannot be locked")


# What SQLite says when it cannot read, as its numbers are in newer versions of Python only.
UNOPENED = {"unable to open database file", "access permission denied",
            "attempt to write a readonly database"}
UNREADABLE = UNOPENED | {"disk I/O error", "database is locked", "database table is locked",
                         "locking protocol", "database or disk is full", "out of memory",
                         "authorization denied", "interrupted"}


def is_unreadable(error):
    """That is no proof that anything was changed."""
    return str(error) in UNREADABLE


def without_log(path):
    """Length and time of a database, if all of it is in its one file."""
    log = Path(f"{path}-wal")
    if log.exists() and log.stat().st_size > 0:
        return None
    return path.stat().st_size, path.stat().st_mtime_ns


def connect(path):
    """Where nothing can be written, nobody is locked out: then it must not change meanwhile."""
    uri = path.resolve().as_uri()
    connection = sqlite3.connect(f"{uri}?mode=ro", uri=True)
    try:
        connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.OperationalError as error:
        before = without_log(path)
        if str(error) in UNOPENED and before is not None:
            connection.close()
            return sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True), before
    except sqlite3.Error:
        pass
    return connection, None


def read_tables(connection, said):
    def single(query, *values):
        row = connection.execute(query, values).fetchone()
        return row[0] if row else None

    if single("PRAGMA application_id") != 0x686F7463:
        raise Broken("application_id: another program made this database")
    version = single("PRAGMA user_version")
    if version not in (1, 2, 3, 4):
        raise Missing(f"knowledge of tables of version {version}")
    found = single("PRAGMA integrity_check(1)")
    if found != "ok":
        raise Broken(f"database: {found}")
    home = single("SELECT value FROM meta WHERE name = 'home'")
    if type(home) is not bytes or len(home) != 16:
        raise Broken("home: the database does not say which home it is of")
    if single("SELECT value FROM meta WHERE name = 'genesis'") != genesis(home):
        raise Broken("genesis: it is not that of this home")
    connection.execute("BEGIN")
    chain, lost, last_lost = Chain(home), 0, 0
    for row in connection.execute(f"SELECT {', '.join(COLUMNS)} FROM event ORDER BY seq"):
        event = dict(zip(COLUMNS, row))
        try:
            event["rules"] = unlist(event["rules"])
        except Broken as error:
            raise Broken(f"event {chain.last + 1}: {error}") from None
        chain.take(event)
        for payload in ("input", "output"):
            if not is_kept(connection, version, event, payload):
                lost, last_lost = lost + 1, chain.last
    if chain.last == 0:
        raise Broken("count: there is no event, and the first is made with the home")
    unfinished = list(connection.execute("SELECT call, seq FROM unfinished"))
    if dict(unfinished) != chain.open or len(unfinished) != len(chain.open):
        raise Broken("unfinished: it is not the list of the intents without an end")
    if last_lost > max(chain.pruned, chain.untold):
        raise Broken(f"payload: the content of event {last_lost} is missing, and was not pruned")
    said(f"checked: events 1 to {chain.last}, every field, every link, intents and ends, contents")
    if lost:
        said(f"cannot be found: changes to {lost} contents that are no longer kept")
    if lost and chain.untold > chain.pruned:
        said(f"cannot be found: which contents of events {chain.pruned + 1} to {chain.untold} were "
             "taken away: an older hotcell pruned some and did not say which")
    lines = []
    if version >= 2:
        for place, seq, line in connection.execute(
            "SELECT number, seq, line FROM checkpoint ORDER BY number"
        ):
            if place != len(lines) + 1:
                raise Broken("checkpoint: some of them are missing")
            match = CHECKPOINT.fullmatch(line)
            if match and int(match.group(3)) != seq:
                raise Broken("checkpoint: it is listed for another event")
            lines.append(line)
    return chain, home, lines


def is_of_a_row(event):
    is_such = event["kind"] in ("artifact_added", "artifact_changed", "bearer_changed")
    return is_such and event["output_media"].startswith("row:")


def is_kept(connection, version, event, payload):
    seq, digest, head = event["seq"], event[f"{payload}_digest"], event[f"{payload}_head"]
    if digest is None or payload == "output" and is_of_a_row(event):
        return True
    row = None
    if version >= 3:
        small = f"SELECT {payload} FROM small WHERE seq = ? AND {payload} IS NOT NULL"
        row = connection.execute(small, (seq,)).fetchone()
    if row is None:
        shared = "SELECT content FROM payload WHERE digest = ?"
        row = connection.execute(shared, (digest,)).fetchone()
    if row is None:
        return False
    if head is not None:
        is_right = hashlib.sha256(row[0]).digest() == head
    else:
        is_right = len(row[0]) == event[f"{payload}_length"]
        is_right = is_right and hashlib.sha256(row[0]).digest() == digest
    if not is_right:
        raise Broken(f"event {seq}: the content of its {payload} is not what was hashed")
    return True


def read_export(path, said):
    try:
        return read_lines(path, said)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Broken(f"export: a line is not as it has to be: {error}") from None


def unique(pairs):
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name twice")
    return result


def no_constant(word):
    raise ValueError(f"{word} is not JSON")


def read_lines(path, said):
    chain, home, lines, end = None, None, [], None
    with open(path, encoding="utf-8", newline="\n") as export:
        for line in export:
            line = json.loads(line, object_pairs_hook=unique, parse_constant=no_constant)
            kind = line.pop("type")
            if end is not None:
                raise Broken("export: there is something after the end")
            if kind == "header" and chain is None:
                keys(line, ["format", "version", "home", "key"])
                if (line["format"], line["version"]) != ("hotcell-record", 1):
                    raise Missing("knowledge of this export's version")
                home, header = from_hex(line["home"], 16), line
                chain = Chain(home)
            elif chain is None:
                raise Broken("export: it does not begin with a header")
            elif kind == "event" and not lines:
                chain.take(from_json(line))
            elif kind == "checkpoint":
                keys(line, ["line"])
                lines.append(line["line"])
            elif kind == "end":
                keys(line, ["events", "checkpoints", "head"])
                end = line
            else:
                raise Broken("export: a line is where it must not be")
    if end is None:
        raise Broken("export: it has no end")
    if chain.last == 0:
        raise Broken("count: there is no event, and the first is made with the home")
    if (end["events"], end["checkpoints"]) != (chain.last, len(lines)):
        raise Broken("export: it counts other lines than there are")
    if from_hex(end["head"], 32) != chain.hash:
        raise Broken("export: its head is another")
    key = Checkpoint(lines[-1]).key.hex() if lines else None
    if header["key"] != key:
        raise Broken("export: its key is another")
    said(f"checked: events 1 to {chain.last}, every field, every link, intents and ends")
    said("cannot be found: changes to contents of payloads, which are not in an export")
    return chain, home, lines


def keys(line, expected):
    if sorted(line) != sorted(expected):
        raise ValueError("other names than there have to be")


def from_hex(value, length):
    if not re.fullmatch(r"[0-9a-f]{%d}" % (2 * length), value, re.ASCII):
        raise ValueError("not hexadecimal")
    return bytes.fromhex(value)


def from_json(line):
    parts = ["digest", "length", "head", "media"]
    keys(line, [c for c in COLUMNS if not c.startswith(("input_", "output_"))] + ["input", "output"])
    for payload in ("input", "output"):
        value = line.pop(payload)
        if value is not None:
            keys(value, parts)
        for part in parts:
            line[f"{payload}_{part}"] = None if value is None else value[part]
    if type(line["rules"]) is not list:
        raise ValueError("rules is not a list")
    sizes = {"id": 16, "call": 16, "parent": 16, "owner": 16, "prev": 32, "hash": 32,
             "input_digest": 32, "input_head": 32, "output_digest": 32, "output_head": 32}
    for field, size in sizes.items():
        if line[field] is not None:
            line[field] = from_hex(line[field], size)
    return line


def is_database(path):
    try:
        with open(path, "rb") as file:
            return file.read(1) != b"{"
    except OSError:
        return True


def verify(path, anchor, said):
    chain, home, lines = (read_database if is_database(path) else read_export)(path, said)
    key = check_checkpoints(chain, home, lines)
    said(f"checked: {len(lines)} checkpoints in the record")
    missing, covered = [], 0
    if not lines:
        missing.append("checkpoints: the record has none")
    try:
        if anchor is None:
            raise Missing("an anchor: nothing outside the record was compared")
        covered = check_anchor(anchor, chain, home, lines, key, said)
    except Missing as error:
        missing.append(str(error))
    if covered < chain.last:
        said(f"cannot be found: a cut or a rewrite of events {covered + 1} to {chain.last}, "
             "which no checkpoint outside covers yet")
    said("cannot be found: a rewrite by somebody who has the signing key and can change the anchor")
    if missing:
        raise Missing("; ".join(missing))
    return chain.last


def main(arguments):
    anchor = None
    if arguments[:1] == ["--anchor"] and len(arguments) > 1:
        anchor, arguments = arguments[1], arguments[2:]
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return UNPROVEN
    said = []
    try:
        events = verify(Path(arguments[0]), anchor, said.append)
        verdict, status = f"sound: {events} events checked", SOUND
    except Broken as error:
        verdict, status = f"broken: {error}", BROKEN
    except Missing as error:
        verdict, status = f"unproven: missing: {error}", UNPROVEN
    # What was read may have anything in it.
    for line in [verdict, *said]:
        print("".join(c if c.isprintable() else repr(c)[1:-1] for c in line))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
