"""Slow, obviously right simulators: sets, and a search over all blocks for every victim.

Nothing here shares code or data structures with kvbudget. A chain is a list of block ids; `order`
(request, -depth) says which of two blocks is older: earlier request first, deeper first.
"""

from __future__ import annotations

import itertools

NAMES = [
    "l1_hit_blocks",
    "l2_hit_blocks",
    "l3_hit_blocks",
    "hit_tokens",
    "d2h_blocks",
    "h2d_blocks",
    "h2s_blocks",
    "s2h_blocks",
    "l1_evicted_blocks",
    "l1_lost_blocks",
    "l2_evicted_blocks",
    "backup_refused_blocks",
    "prefetch_short",
    "unusable_l2_blocks",
    "cut_requests",
]


def cut(chain, c1, n):
    n["cut_requests"] += len(chain) > c1
    return chain[:c1]


def prefix(chain, start, inside):
    """How many blocks from `start` on are inside, without a hole."""
    return len(list(itertools.takewhile(lambda b: b in inside, chain[start:])))


def fresh():
    return dict.fromkeys(NAMES, 0)


def stack_depths(requests):
    """The depth of every access in one unbounded stack (None: first touch), atomic matching."""
    stack, out = [], []
    for chain, _ in requests:
        out.append([stack.index(b) if b in stack else None for b in chain])
        stack = chain + [b for b in stack if b not in chain]
    return out


def infinite_hits(requests):
    seen, hits = set(), 0
    for chain, _ in requests:
        hits += prefix(chain, 0, seen)
        seen |= set(chain)
    return hits


def tree(requests, bt, c1, c2, c3, policy, invariant, inserts, probe):
    """The radix tree with copies on two tiers (write_through, ..._selective, write_back)."""
    n = fresh()
    device, host, storage = set(), set(), []
    order, count, up, loaded = {}, {}, {}, {}
    threshold = 2 if policy == "write_through_selective" else 1
    back = policy == "write_back"
    clock = 0
    own = set()

    def kids(b, where):
        return [k for k in where if up.get(k) == b]

    def leave(b):
        count.pop(b, None)

    def host_room():
        """One free host block; True when there is one."""
        if len(host) < c2:
            return True
        victims = []
        if back:
            twins = sorted((b for b in host & device), key=lambda b: loaded[b])
            victims = [b for b in twins if kids(b, device)] or twins
        if not victims:
            victims = sorted(
                (b for b in host - device - own if not kids(b, device | host)),
                key=lambda b: order[b],
            )
            for b in victims[:1]:
                leave(b)
        if not victims:
            return False
        host.discard(victims[0])
        loaded.pop(victims[0], None)
        n["l2_evicted_blocks"] += 1
        return True

    def backup(b):
        if not host_room():
            return False
        host.add(b)
        n["d2h_blocks"] += 1
        if c3 and b not in storage:
            storage.append(b)
            n["h2s_blocks"] += 1
            del storage[: max(0, len(storage) - c3)]
        return True

    def real(k, length):
        return min(bt * k, length)

    for t, (whole, length) in enumerate(requests):
        chain = cut(whole, c1, n)
        up.update({b: a for a, b in itertools.pairwise([None, *chain])})
        h1 = prefix(chain, 0, device)
        on_host = prefix(chain, h1, host)
        h2 = on_host if on_host * bt >= 10 else 0
        n["unusable_l2_blocks"] += on_host - h2
        own = set(chain)
        for k in range(h1 + on_host):
            order[chain[k]] = (t, -k)
        h3 = 0
        left = len(chain) - h1 - on_host
        done = h1 + h2
        if c3 and left and h2 == on_host:
            k = prefix(chain, done, storage)
            if real(len(chain), length) - real(done, length) < probe or (
                k and real(done + k, length) - real(done, length) < probe
            ):
                n["prefetch_short"] += 1
            elif k and not back and done and chain[done - 1] not in host:
                n["backup_refused_blocks"] += 1
            elif k:
                while c2 - len(host) < k:
                    before = len(host)
                    full = c2
                    # room beyond one block: evict as if the pool were full
                    if len(host) < full:
                        c2_now, c2 = c2, len(host)
                        got = host_room()
                        c2 = c2_now
                    else:
                        got = host_room()
                    if not got or len(host) == before:
                        break
                fits = min(k, c2 - len(host))
                h3 = fits if fits == k or fits * bt >= probe else 0
                for j in range(h3):
                    b = chain[done + j]
                    host.add(b)
                    storage.remove(b)
                    storage.append(b)
        n["s2h_blocks"] += h3
        n["l1_hit_blocks"] += h1
        n["l2_hit_blocks"] += h2
        n["l3_hit_blocks"] += h3
        n["h2d_blocks"] += h2 + h3
        n["hit_tokens"] += real(h1 + h2 + h3, length)
        while len(device) + len(chain) - h1 > c1:
            b = min((b for b in device - own if not kids(b, device)), key=lambda b: order[b])
            n["l1_evicted_blocks"] += 1
            loaded.pop(b, None)
            if b not in host and back and not backup(b):
                n["backup_refused_blocks"] += 1
            device.discard(b)
            if b not in host:
                n["l1_lost_blocks"] += 1
                leave(b)
                assert not kids(b, host), "a dropped block had a subtree"
        for k, b in enumerate(chain):
            if b not in device and b in host:
                clock += 1
                loaded[b] = clock
            device.add(b)
            order[b] = (t, -k)
        if not back:
            for _ in range(inserts):
                for k, b in enumerate(chain):
                    count[b] = count.get(b, 0) + 1
                    if count[b] < threshold or b in host:
                        continue
                    if invariant == "refuse":
                        if k == 0 or chain[k - 1] in host:
                            backup(b)
                    else:
                        for a in chain[: k + 1]:
                            if a not in host and not backup(a):
                                break
                    n["backup_refused_blocks"] += b not in host
        assert len(device) <= c1
        assert len(host) <= c2
        own = set()
    assert n["d2h_blocks"] + n["s2h_blocks"] - n["l2_evicted_blocks"] == len(host)
    return n


def lru(requests, bt, c1):
    """One tier as a list, newest first."""
    n, stack = fresh(), []
    for whole, length in requests:
        chain = cut(whole, c1, n)
        hit = prefix(chain, 0, stack)
        n["l1_hit_blocks"] += hit
        n["hit_tokens"] += min(bt * hit, length)
        stack = chain + [b for b in stack if b not in chain]
        n["l1_evicted_blocks"] += max(0, len(stack) - c1)
        n["l1_lost_blocks"] = n["l1_evicted_blocks"]
        del stack[c1:]
    return n


def eager(requests, bt, c1, c2):
    """Two independent stacks; the host's is refreshed for the whole chain."""
    n, dev, host = fresh(), [], []
    for whole, length in requests:
        chain = cut(whole, c1, n)
        h1 = prefix(chain, 0, dev)
        h2 = prefix(chain, h1, host)
        n["unusable_l2_blocks"] += sum(b in host for b in chain[h1 + h2 :])
        n["l1_hit_blocks"] += h1
        n["l2_hit_blocks"] += h2
        n["h2d_blocks"] += h2
        n["hit_tokens"] += min(bt * (h1 + h2), length)
        dev = chain + [b for b in dev if b not in chain]
        n["l1_evicted_blocks"] += len(dev[c1:])
        n["l1_lost_blocks"] += sum(b not in host for b in dev[c1:])
        del dev[c1:]
        stored = chain[:c2]
        n["d2h_blocks"] += sum(b not in host for b in stored)
        host = stored + [b for b in host if b not in stored]
        n["l2_evicted_blocks"] += len(host[c2:])
        del host[c2:]
    return n


def exclusive(requests, bt, c1, c2):
    """The host list receives what the device list gives up."""
    n, dev, host = fresh(), [], []
    for whole, length in requests:
        chain = cut(whole, c1, n)
        h1 = prefix(chain, 0, dev)
        h2 = prefix(chain, h1, host)
        n["unusable_l2_blocks"] += sum(b in host for b in chain[h1 + h2 :])
        n["l1_hit_blocks"] += h1
        n["l2_hit_blocks"] += h2
        n["h2d_blocks"] += h2
        n["hit_tokens"] += min(bt * (h1 + h2), length)
        host = [b for b in host if b not in chain]
        dev = chain + [b for b in dev if b not in chain]
        while len(dev) > c1:
            victim = dev.pop()
            n["l1_evicted_blocks"] += 1
            if c2:
                n["d2h_blocks"] += 1
                host.insert(0, victim)
                n["l2_evicted_blocks"] += len(host) > c2
                del host[c2:]
            else:
                n["l1_lost_blocks"] += 1
    return n


def lazy(requests, bt, c1, c2, step, ahead, head_first, reinsert):
    """The free queue as a list whose first entries (None) were never used."""
    n, queue, host = fresh(), [None] * c1, []

    def copy():
        for b in [b for b in queue[:ahead] if b is not None and b not in host]:
            if not c2:
                return
            host.append(b)
            n["d2h_blocks"] += 1
            if len(host) > c2:
                host.pop(0)
                n["l2_evicted_blocks"] += 1
            if reinsert:
                queue.remove(b)
                queue.append(b)

    for whole, length in requests:
        chain = cut(whole, c1, n)
        h1 = prefix(chain, 0, queue)
        h2 = prefix(chain, h1, host)
        n["unusable_l2_blocks"] += sum(b in host for b in chain[h1 + h2 :])
        n["l1_hit_blocks"] += h1
        n["l2_hit_blocks"] += h2
        n["h2d_blocks"] += h2
        n["hit_tokens"] += min(bt * (h1 + h2), length)
        loads = chain[h1 : h1 + h2]
        for b in loads if head_first else reversed(loads):
            host.remove(b)
            host.append(b)
        missing = [b for b in chain if b not in queue]
        queue[:] = [b for b in queue if b is None or b not in chain]
        while missing:
            for _ in missing[:step]:
                victim = queue.pop(0)
                if victim is not None:
                    n["l1_evicted_blocks"] += 1
                    n["l1_lost_blocks"] += victim not in host
            del missing[:step]
            copy()
        queue += reversed(chain)
        copy()
    return n
