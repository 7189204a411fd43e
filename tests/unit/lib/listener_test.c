/* SPDX-License-Identifier: Apache-2.0 */
/* listener_test.c - sockets of a directory of our own; who listens is this process or a child. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/path.h"
#include "lib/peer.h"
#include "tests/unit/own_processes.h"
#include "tests/unit/scratch.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define ID "0123456789abcdef0123456789abcdef01234567"

struct fixture {
    char directory[SCRATCH_BYTES];
    int root;
    pid_t child;
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    assert_int_equal(scratch_directory_make(fixture->directory), 0);
    assert_int_equal(path_open_root(fixture->directory, &fixture->root), 0);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    if (fixture->child) {
        (void)kill(fixture->child, SIGKILL);
        (void)waitpid(fixture->child, NULL, 0);
    }
    fd_close(fixture->root);
    assert_int_equal(scratch_directory_remove(fixture->directory), 0);
    free(fixture);
    return 0;
}

static void make_directory(const struct fixture *fixture, const char *name)
{
    assert_int_equal(mkdirat(fixture->root, name, 0755), 0);
}

static int listen_at(const struct fixture *fixture, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_true(snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", fixture->directory,
                         name) < (int)sizeof(address.sun_path));
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

static int open_socket(const struct fixture *fixture, const char *path, pid_t vmm)
{
    const struct listener listener = {.vmm = vmm, .sandbox_id = ID};
    cleanup(fd_closep) int fd = -1;
    struct error error;

    return listener_open(fixture->root, path, &listener, &fd, &error);
}

static bool is_believed(const struct fixture *fixture, const char *name,
                        const struct listener *listener, struct error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    cleanup(fd_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", fixture->directory, name);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return listener_is_believed(fd, name, listener, error);
}

/* This program's own first argument: a child writes others over it, as any process may. */
static char *arguments;

/* What a child becomes before it listens. */
struct guise {
    const char *arguments; /* NULL: those of this program */
    size_t length;
    uid_t user;
    const char *root; /* NULL: that of this process */
};

static void put_on(const struct guise *guise)
{
    if (guise->arguments) {
        if (guise->length > strlen(arguments))
            _exit(1);
        memset(arguments, 0, strlen(arguments));
        memcpy(arguments, guise->arguments, guise->length);
    }
    if ((guise->root && (chroot(guise->root) < 0 || chdir("/") < 0)) ||
        (guise->user && setresuid(guise->user, guise->user, guise->user) < 0))
        _exit(1);
}

/* A process that listens, and then waits; `ends`: it ends, and the socket stays this process',
 * which has yet to wait for it. */
static void listen_in_guise(struct fixture *fixture, const char *name, bool ends,
                            const struct guise *guise)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), pipe_of[2];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char byte;

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", fixture->directory, name);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(pipe(pipe_of), 0);
    fixture->child = fork();
    assert_true(fixture->child >= 0);
    if (fixture->child == 0) {
        put_on(guise);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)listen(fd, 4);
        (void)!write(pipe_of[1], "x", 1);
        while (!ends)
            pause();
        _exit(0);
    }
    assert_int_equal(read(pipe_of[0], &byte, 1), 1);
    (void)close(pipe_of[0]);
    (void)close(pipe_of[1]);
    if (ends) {
        assert_int_equal(waitid(P_PID, (id_t)fixture->child, NULL, WEXITED | WNOWAIT), 0);
    } else {
        fd_close(fd);
    }
}

static void wait_for_child(struct fixture *fixture)
{
    assert_int_equal(waitpid(fixture->child, NULL, 0), fixture->child);
    fixture->child = 0;
}

static void listen_in_child(struct fixture *fixture, const char *name, bool ends)
{
    listen_in_guise(fixture, name, ends, &(struct guise){0});
}

static void the_vmm_and_its_parent_are_believed(void **state)
{
    struct fixture *fixture = *state;
    struct listener listener = {.vmm = getpid()};
    cleanup(fd_closep) int own = -1;
    struct error error = {0};

    own = listen_at(fixture, "own");
    assert_true(is_believed(fixture, "own", &listener, &error));
    listen_in_child(fixture, "childs", false);
    listener.vmm = fixture->child;
    assert_true(is_believed(fixture, "childs", &listener, &error));
    assert_true(is_believed(fixture, "own", &listener, &error));
}

#define SHORT_ID "5a4db0"
#define SHIM     .arguments = "-id\0" SHORT_ID, .length = sizeof("-id\0" SHORT_ID)
enum { INIT = 1, NOBODY = 65534 };

/* The sandbox's VMM is another process than the one that listens. */
static bool is_believed_as(struct fixture *fixture, const char *name, const struct guise *guise,
                           struct error *error)
{
    const struct listener listener = {.vmm = INIT, .sandbox_id = SHORT_ID};
    bool believed;

    listen_in_guise(fixture, name, false, guise);
    believed = is_believed(fixture, name, &listener, error);
    (void)kill(fixture->child, SIGKILL);
    (void)waitpid(fixture->child, NULL, 0);
    fixture->child = 0;
    return believed;
}

/* A shim is believed by its arguments. They can be anybody's: so it has to be root's, and where the
 * node's first process is. A virtiofsd, which a guest may have taken over, names the sandbox in a
 * path and has a root directory of its own. */
static void a_shim_is_roots_and_not_in_a_jail(void **state)
{
    static const char path[] = "-x\0/" SHORT_ID "/s";
    struct fixture *fixture = *state;
    struct error error = {0};

    if (geteuid() != 0)
        skip();
    assert_true(is_believed_as(fixture, "shim", &(struct guise){SHIM}, &error));
    assert_false(is_believed_as(
        fixture, "path", &(struct guise){.arguments = path, .length = sizeof(path)}, &error));
    assert_non_null(strstr(error.text, "neither the sandbox's VMM nor its shim"));
    assert_false(is_believed_as(fixture, "user", &(struct guise){SHIM, .user = NOBODY}, &error));
    if (first_process_can_be_examined())
        assert_false(
            is_believed_as(fixture, "jail", &(struct guise){SHIM, .root = "/proc"}, &error));
}

static void another_process_is_not(void **state)
{
    struct fixture *fixture = *state;
    const struct listener listener = {.vmm = getpid(), .sandbox_id = ID};
    struct error error = {0};
    char expected[64];

    listen_in_child(fixture, "childs", false);
    assert_false(is_believed(fixture, "childs", &listener, &error));
    (void)snprintf(expected, sizeof(expected), "process %d (listener_test", (int)fixture->child);
    assert_non_null(strstr(error.text, expected));
    assert_non_null(strstr(error.text, "listens on childs"));
}

/* Linux since 6.5. */
static bool tells_peers_pidfd(void)
{
    int pair[2], process = -1;
    socklen_t size = sizeof(process);
    bool tells;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    tells = getsockopt(pair[0], SOL_SOCKET, SO_PEERPIDFD, &process, &size) == 0;
    if (tells)
        fd_close(process);
    fd_close(pair[0]);
    fd_close(pair[1]);
    return tells;
}

/* It is this user's, who is the VMM's as well: the socket was handed on. */
static void one_that_has_ended_is_believed_if_it_was_the_vmms_users(void **state)
{
    struct fixture *fixture = *state;
    const struct listener listener = {.vmm = getpid(), .sandbox_id = ID};
    struct error error = {0};

    listen_in_child(fixture, "childs", true);
    wait_for_child(fixture);
    assert_true(is_believed(fixture, "childs", &listener, &error));
}

/* There still is a process of its number, as if another one had got it. */
static void one_that_has_ended_is_not_taken_for_who_has_its_number(void **state)
{
    struct fixture *fixture = *state;
    const struct listener listener = {.vmm = getpid(), .sandbox_id = ID};
    struct error error = {0};

    if (!tells_peers_pidfd())
        skip();
    listen_in_child(fixture, "childs", true);
    assert_int_equal(kill(fixture->child, 0), 0);
    assert_true(is_believed(fixture, "childs", &listener, &error));
}

static void one_that_has_ended_is_not_believed_if_it_was_another_users(void **state)
{
    struct fixture *fixture = *state;
    const struct listener listener = {.vmm = getpid(), .sandbox_id = ID};
    struct error error = {0};

    if (geteuid() != 0)
        skip();
    listen_in_guise(fixture, "childs", true, &(struct guise){.user = NOBODY});
    wait_for_child(fixture);
    assert_false(is_believed(fixture, "childs", &listener, &error));
    assert_non_null(strstr(error.text, "(one that has ended) of user 65534 listens on childs"));
}

static void without_a_vmm_any_listener_is_believed(void **state)
{
    struct fixture *fixture = *state;
    const struct listener listener = {0};
    struct error error = {0};

    listen_in_child(fixture, "childs", false);
    assert_true(is_believed(fixture, "childs", &listener, &error));
}

static void links_lead_to_the_sandbox_but_not_on(void **state)
{
    struct fixture *fixture = *state;
    cleanup(fd_closep) int own = -1, other = -1;

    make_directory(fixture, "real");
    make_directory(fixture, "real/" ID);
    make_directory(fixture, "real/" ID "/inner");
    assert_int_equal(symlinkat("real", fixture->root, "run"), 0);
    own = listen_at(fixture, "real/" ID "/s");
    other = listen_at(fixture, "real/" ID "/inner/s");
    assert_int_equal(symlinkat("s", fixture->root, "real/" ID "/linked"), 0);
    assert_int_equal(symlinkat("inner", fixture->root, "real/" ID "/way"), 0);

    assert_int_equal(open_socket(fixture, "/run/" ID "/s", getpid()), 0);
    assert_int_equal(open_socket(fixture, "/run/" ID "/inner/s", getpid()), 0);
    assert_int_equal(open_socket(fixture, "/run/" ID "/linked", getpid()), PATH_BEHIND_A_LINK);
    assert_int_equal(open_socket(fixture, "/run/" ID "/way/s", getpid()), PATH_BEHIND_A_LINK);
    assert_int_equal(open_socket(fixture, "/run/" ID "/../s", getpid()), PATH_LEADS_OUT);
    assert_int_equal(open_socket(fixture, "/run/" ID "/way/s", 0), 0);
    assert_int_equal(open_socket(fixture, "/run/" ID "/none", getpid()), PATH_MISSING);
}

/* Where no directory has the sandbox's name, the socket's own directory counts. */
static void a_directory_of_many_sockets(void **state)
{
    struct fixture *fixture = *state;
    cleanup(fd_closep) int own = -1;

    make_directory(fixture, "many");
    assert_int_equal(symlinkat("many", fixture->root, "way"), 0);
    own = listen_at(fixture, "many/" ID ".sock");
    assert_int_equal(symlinkat(ID ".sock", fixture->root, "many/linked.sock"), 0);
    assert_int_equal(open_socket(fixture, "/way/" ID ".sock", getpid()), 0);
    assert_int_equal(open_socket(fixture, "/way/linked.sock", getpid()), PATH_BEHIND_A_LINK);
}

/* Firecracker's directories have the first 32 characters of the id. */
static void a_jails_directory_is_the_sandboxs(void **state)
{
    struct fixture *fixture = *state;
    cleanup(fd_closep) int own = -1;

    make_directory(fixture, "0123456789abcdef0123456789abcdef");
    make_directory(fixture, "0123456789abcdef0123456789abcdef/root");
    own = listen_at(fixture, "0123456789abcdef0123456789abcdef/root/s");
    assert_int_equal(symlinkat("root", fixture->root, "0123456789abcdef0123456789abcdef/way"), 0);
    assert_int_equal(open_socket(fixture, "/0123456789abcdef0123456789abcdef/root/s", getpid()), 0);
    assert_int_equal(open_socket(fixture, "/0123456789abcdef0123456789abcdef/way/s", getpid()),
                     PATH_BEHIND_A_LINK);
    assert_int_equal(symlinkat(".", fixture->root, "0123456789abcdef0123456789abcdef/0123"), 0);
    assert_int_equal(
        open_socket(fixture, "/0123456789abcdef0123456789abcdef/0123/root/s", getpid()),
        PATH_BEHIND_A_LINK); /* a part of the id names nothing */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static int all_tests(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_vmm_and_its_parent_are_believed),
        TEST(a_shim_is_roots_and_not_in_a_jail),
        TEST(another_process_is_not),
        TEST(one_that_has_ended_is_believed_if_it_was_the_vmms_users),
        TEST(one_that_has_ended_is_not_believed_if_it_was_another_users),
        TEST(one_that_has_ended_is_not_taken_for_who_has_its_number),
        TEST(without_a_vmm_any_listener_is_believed),
        TEST(links_lead_to_the_sandbox_but_not_on),
        TEST(a_directory_of_many_sockets),
        TEST(a_jails_directory_is_the_sandboxs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int count, char **values)
{
    if (count < 1)
        return 1;
    arguments = values[0];
    return own_processes_run(all_tests);
}
