/* SPDX-License-Identifier: Apache-2.0 */
/* quarantine_race_test.c - cleanups against a writer who follows Kata's own sequence.
 *
 * Two processes, one metadata directory, thousands of rounds. In each the writer adds once (stat,
 * mkdir, open with O_TRUNC, write, close), while the other takes the directory away as the trash
 * does it: moved, looked at, looked at once more when no writer can be on his way any more, and put
 * back if it changed. What the writer was told to be written must then stand in its place.
 *
 * In one half of the rounds both run freely, begun at ever other distances. In the other the writer
 * goes as far as he is let: to one of his steps before the cleanup begins, to a later one just
 * before one of those system calls by which the cleanup changes something, and on once it has
 * looked. All such courses are taken in turn, so a cleanup that could lose a write loses it here,
 * however busy the machine is: then the rounds are as many as the time allows, and each course is
 * taken several times in any case.
 */
#include "tests/unit/tree.h"

#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "lib/clock.h"
#include "observe/observe.h"
#include "reconciler/cleanup/cleanup_pass.h"

#define VOLUMES "/run/shared/direct-volumes"
#define TRASH   "/run/shared/.trash"
#define KEY     "a2V5"
#define ENTRY   VOLUMES "/" KEY

enum { STAT, MKDIR, OPEN, WRITE, CLOSE, STEPS }; /* the writer's */
enum { CALLS = 3, NEVER = INT_MAX };             /* of the cleanup, that are stopped at */

enum { ROUNDS = 20000, ROUNDS_IN_ANY_CASE = 8 * 2 * STEPS * STEPS * CALLS, SECONDS = 20 };
enum { SPINS = 4000, AWAKE = 400000 };

struct shared {
    atomic_uint round, done; /* that is on; the last one that the writer ended */
    atomic_uint limit, step; /* the writer stands before `step`, and goes on while it is below */
    atomic_uint asleep;      /* who waits in the kernel */
    bool acknowledged;
};

static struct shared *shared;
static pid_t writer;
static struct quarantine quarantine;
static unsigned put_back, moved;

/* ---- how a round goes ------------------------------------------------------------------------ */

struct plan {
    unsigned first, second, call; /* how far the writer goes before all, and before that call */
    unsigned writer_spins, cleanup_spins;
};

static struct plan plan_of(unsigned round)
{
    unsigned turn = round / 2;

    if (round % 2)
        return (struct plan){STEPS, STEPS, NEVER, turn * 37 % SPINS, turn * 101 % SPINS};
    return (struct plan){.first = turn % STEPS,
                         .second = turn % STEPS + 1 + turn / STEPS % (STEPS - turn % STEPS),
                         .call = turn / (STEPS * STEPS) % CALLS};
}

static void spin(unsigned count)
{
    for (atomic_uint i = 0; i < count;)
        i++;
}

static void set(atomic_uint *value, unsigned number)
{
    atomic_store(value, number);
    if (atomic_load(&shared->asleep))
        (void)syscall(SYS_futex, value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Awake for a moment, in which most of it comes about; then asleep. */
static void wait_for(const atomic_uint *value, unsigned least)
{
    for (unsigned i = 0, now; (now = atomic_load(value)) < least; i++) {
        if (i < AWAKE)
            continue;
        atomic_fetch_add(&shared->asleep, 1);
        (void)syscall(SYS_futex, value, FUTEX_WAIT, now, NULL, NULL, 0);
        atomic_fetch_sub(&shared->asleep, 1);
    }
}

/* Lets the writer go as far as that, and waits until he has. */
static void let_go(unsigned limit)
{
    set(&shared->limit, limit);
    wait_for(&shared->step, limit);
}

/* ---- the writer ------------------------------------------------------------------------------ */

static void before(unsigned step)
{
    set(&shared->step, step);
    wait_for(&shared->limit, step + 1);
}

/* Whether it was acknowledged. */
static bool add(unsigned round)
{
    char text[64];
    struct stat st;
    int length = snprintf(text, sizeof(text), "{\"device\":\"/dev/%u\"}", round);
    int fd;
    bool written;

    before(STAT);
    if (stat(tree_path(ENTRY), &st) < 0) {
        before(MKDIR);
        if (mkdir(tree_path(ENTRY), 0700) < 0 && errno != EEXIST)
            return false;
    }
    before(OPEN);
    fd = open(tree_path(ENTRY "/mountInfo.json"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    before(WRITE);
    written = write(fd, text, (size_t)length) == length;
    before(CLOSE);
    return close(fd) == 0 && written;
}

static void write_each_round(void)
{
    for (unsigned round = 1; round <= ROUNDS; round++) {
        wait_for(&shared->round, round);
        spin(plan_of(round).writer_spins);
        shared->acknowledged = add(round);
        set(&shared->step, STEPS);
        set(&shared->done, round);
    }
}

/* ---- the cleanup's system calls ----------------------------------------------------------------
 */

static unsigned calls, stop_at = NEVER, stop_limit;

static void before_call(void)
{
    if (calls++ == stop_at)
        let_go(stop_limit);
}

/* These stand before the C library's. */
int renameat2(int from, const char *name, int to, const char *new_name, unsigned flags)
{
    before_call();
    return (int)syscall(SYS_renameat2, from, name, to, new_name, flags);
}

int unlinkat(int directory, const char *name, int flags)
{
    before_call();
    return (int)syscall(SYS_unlinkat, directory, name, flags);
}

int mkdirat(int directory, const char *name, mode_t mode)
{
    before_call();
    return (int)syscall(SYS_mkdirat, directory, name, mode);
}

/* ---- the cleanup ----------------------------------------------------------------------------- */

static void take_fingerprint(char ret_fingerprint[static SHA256_HEX_BYTES])
{
    cleanup(fd_closep) int fd = open(tree_path(ENTRY), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_int_equal(fingerprint_directory(fd, ret_fingerprint, NULL), FINGERPRINT_TAKEN);
}

static void observe_and_put_back(const struct quarantine_item *item)
{
    struct quarantine_state now;

    assert_int_equal(quarantine_observe(&quarantine, item, &now), 0);
    if (!now.in_trash || now.unchanged)
        return;
    put_back += quarantine_put_back(&quarantine, item) == QUARANTINE_DONE;
}

static void clean_up(const struct plan *plan, const struct quarantine_item *item, unsigned round)
{
    int r;

    if (plan->call != NEVER)
        let_go(plan->first);
    spin(plan->cleanup_spins);
    calls = 0;
    stop_at = plan->call;
    stop_limit = plan->second;
    r = quarantine_take(&quarantine, item);
    stop_at = NEVER;
    if (r != QUARANTINE_DONE && r != QUARANTINE_ABSENT)
        fail_msg("round %u: not taken: %s", round, strerror(-r));
    moved += r == QUARANTINE_DONE;
    observe_and_put_back(item);
    set(&shared->limit, STEPS);
    wait_for(&shared->done, round);
    observe_and_put_back(item);
}

static void check(unsigned round)
{
    char text[64] = "", wanted[64];
    cleanup(fd_closep) int fd = open(tree_path(ENTRY "/mountInfo.json"), O_RDONLY | O_CLOEXEC);

    if (!shared->acknowledged)
        return;
    (void)snprintf(wanted, sizeof(wanted), "{\"device\":\"/dev/%u\"}", round);
    if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0 || strcmp(text, wanted) != 0)
        fail_msg("round %u: acknowledged, and there is \"%s\"", round, text);
}

static void run_round(unsigned round)
{
    struct plan plan = plan_of(round);
    char fingerprint[SHA256_HEX_BYTES], name[32];
    struct quarantine_item item = {.key = KEY, .name = name, .fingerprint = fingerprint};

    (void)snprintf(name, sizeof(name), "1-%u", round);
    set(&shared->limit, STEPS);
    if (!tree_has(ENTRY))
        assert_true(add(0));
    take_fingerprint(fingerprint);
    set(&shared->step, 0);
    set(&shared->limit, plan.first);
    set(&shared->round, round);
    clean_up(&plan, &item, round);
    check(round);
    assert_int_equal(quarantine_delete(&quarantine, &item, NULL), QUARANTINE_DONE);
}

static void no_acknowledged_write_is_lost(void **state)
{
    const uint64_t until_ns = clock_boottime() + SECONDS * NSEC_PER_SEC;
    unsigned rounds = 0;

    writer = fork();
    if (writer == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        write_each_round();
        _exit(0);
    }
    assert_true(writer > 0);
    while (rounds < ROUNDS_IN_ANY_CASE || (rounds < ROUNDS && clock_boottime() < until_ns))
        run_round(++rounds);
    assert_true(moved > rounds / 4 && put_back > rounds / 10); /* the writer was in the way */
    print_message("%u rounds: %u times moved, %u times put back\n", rounds, moved, put_back);
}

static int start(void **state)
{
    static const char *const watched[] = {VOLUMES, NULL};

    writer = -1;
    quarantine = (struct quarantine)QUARANTINE_INIT;
    if (access(scratch_memory(), R_OK | W_OK | X_OK) == 0)
        (void)setenv("TMPDIR", scratch_memory(), 1); /* a tmpfs, as /run is */
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || tree_start(state) < 0)
        return -1;
    tree_make(VOLUMES);
    return quarantine_open(root, VOLUMES, TRASH, watched, &quarantine, NULL) == QUARANTINE_READY
               ? 0
               : -1;
}

static int stop(void **state)
{
    if (writer > 0) {
        (void)kill(writer, SIGKILL);
        (void)waitpid(writer, NULL, 0);
    }
    quarantine_done(&quarantine);
    return tree_stop(state) | munmap(shared, sizeof(*shared));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_acknowledged_write_is_lost, start, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
