"""Each syscall failed once: crustd goes on or ends with an error, and the growth ends as ever.

What fails must teach nothing: a reading that failed is no proof that a volume, a sandbox or a device
has gone.
"""

import re
import time
import unittest

from lost import SECONDS, SWEEP_ALL, Attached, Interrupted, LostTest, report, sweep, wait
from said import AFTER

# How each syscall can fail here for no fault of its caller. Those not named cannot.
ERRORS = {
    "accept4": ["EMFILE", "ECONNABORTED", "ENOBUFS"],
    "bind": ["ENOMEM"],
    "close": ["EIO"],
    "connect": ["ECONNREFUSED", "EAGAIN", "ENOBUFS"],
    "epoll_create1": ["EMFILE", "ENOMEM"],
    "epoll_ctl": ["ENOMEM", "ENOSPC"],
    "epoll_wait": ["EINTR"],
    "eventfd2": ["EMFILE", "ENOMEM"],
    "fchmod": ["EIO"],
    "fchown": ["EIO"],
    "fcntl": ["ENOLCK", "EINTR", "EAGAIN"],  # a lock that is taken
    "fdatasync": ["EIO", "ENOSPC"],
    "flock": ["EINTR", "ENOLCK"],
    "fsync": ["EIO", "ENOSPC"],
    "ftruncate": ["EIO", "ENOSPC", "EINTR"],
    "getdents64": ["EIO", "ENOMEM"],
    "getrandom": ["EAGAIN"],
    "getsockopt": ["ENOBUFS"],
    "inotify_add_watch": ["ENOSPC", "ENOMEM"],
    "inotify_init1": ["EMFILE", "ENOMEM"],
    "ioctl": ["EIO"],
    "listen": ["EADDRINUSE"],
    "lseek": ["EIO"],
    "mkdir": ["ENOSPC", "EIO"],
    "mkdirat": ["ENOSPC", "EIO"],
    "mmap": ["ENOMEM"],
    "munmap": ["ENOMEM"],
    "newfstatat": ["EIO", "ENOMEM"],
    "openat": ["EMFILE", "EIO", "ENFILE", "ENOMEM", "EINTR"],
    "openat2": ["EMFILE", "EIO", "EAGAIN", "ENFILE", "ENOMEM", "EINTR"],
    "pidfd_open": ["EMFILE", "ENOMEM"],
    "pread64": ["EIO", "EINTR"],
    "pwrite64": ["ENOSPC", "EIO", "EINTR"],
    "read": ["EIO", "EINTR", "EAGAIN", "ECONNRESET"],
    "readlinkat": ["EIO", "ENOMEM"],
    "recvfrom": ["ECONNRESET", "EINTR", "ENOMEM"],
    "recvmsg": ["ENOBUFS", "EINTR", "ENOMEM"],
    "rename": ["EIO", "ENOSPC"],
    "sendmsg": ["ECONNRESET", "ENOBUFS", "EAGAIN"],
    "sendto": ["ECONNRESET", "ENOBUFS", "EAGAIN", "EPIPE"],
    "setsockopt": ["ENOBUFS", "ENOMEM"],
    "socket": ["EMFILE", "ENOBUFS", "ENOMEM"],
    "statx": ["EIO", "ENOMEM"],
    "unlink": ["EIO"],
    "write": ["EIO", "ENOSPC", "EAGAIN", "EPIPE", "EINTR"],
}
STATUSES = (0, 1, 2, 3)  # what INTERFACES.md has; a crash is a signal and so none of these


def errors_of(point):
    if point.syscall == "fcntl" and not re.search("F_(RD|WR)LCK", point.line):
        return []
    return ERRORS.get(point.syscall, [])


def failures(found):
    """(point, error) of this run: each point with each of its errors; in an ordinary run every
    other one with one of them, in turn, for what failed is tried again only after its time."""
    able = [point for point in found if errors_of(point)]
    for point in sweep(able)[::1 if SWEEP_ALL else 2]:
        errors = errors_of(point)
        for error in errors if SWEEP_ALL else [errors[point.number % len(errors)]]:
            yield point, error


class Failed(LostTest):
    """error= for the n-th call of a syscall."""

    def setUp(self):
        super().setUp()
        self.need_strace()

    def end_up(self, growth):
        """Starts it again until there is nothing left to do: what failed waits for its time."""
        deadline = time.monotonic() + SECONDS
        while not growth.is_reached():
            self.assertLess(time.monotonic(), deadline, growth.node.log_tail())
            self.assertEqual(growth.run_once(), 0, growth.node.log_tail())
            time.sleep(0.02)

    def fail_each(self, title, growth):
        growth.reset()
        found = growth.trace()
        growth.check()
        ended = count = 0
        for point, error in failures(found):
            with self.subTest(syscall=str(point), error=error):
                count += 1
                growth.reset()
                status = growth.run_once(point.inject(f"error={error}"))
                self.assertIn(status, STATUSES, growth.node.log_tail())
                ended += status != 0
                self.end_up(growth)
                growth.check()
        report(title, count, sum(map(len, map(errors_of, found))),
               ended_with_an_error=ended)

    def test_growth_seen_at_start(self):
        growth = Interrupted(self)
        self.assertEqual(growth.run_once(), 0, growth.node.log_tail())
        growth.keep()
        growth.grow(AFTER)
        self.fail_each("failed, growth seen at start", growth)

    def test_growth_seen_at_first_start(self):
        growth = Interrupted(self)
        growth.grow(AFTER)
        self.fail_each("failed, first start", growth)


class FailedWhileRunning(LostTest):
    """A daemon that goes on must come to the end by itself: nobody starts it again."""

    def setUp(self):
        super().setUp()
        self.need_strace()
        self.growth = Interrupted(self, {"resize.sweep_seconds": 1})

    def test_growth_of_a_running_daemon(self):
        node = self.growth.node
        node.start()
        self.growth.wait_reached()
        found = self.growth.trace_running()
        count = ended = 0
        for point, error in failures(found):
            with self.subTest(syscall=str(point), error=error):
                count += 1
                with Attached(node.process.pid, point.inject(f"error={error}")):
                    self.growth.grow_more()
                    wait(lambda: node.process.poll() is not None or self.growth.is_reached(),
                         "the growth's end", node.log_tail)
                if node.process.poll() is not None:
                    ended += 1
                    self.assertIn(node.process.returncode, STATUSES, node.log_tail())
                    node.start()
                    self.growth.wait_reached()
                self.growth.check(growths=1 + count)
        report("failed, running daemon", count,
               sum(map(len, map(errors_of, found))),
               ended_with_an_error=ended)


if __name__ == "__main__":
    unittest.main()
