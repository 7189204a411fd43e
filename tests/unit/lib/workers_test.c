/* SPDX-License-Identifier: Apache-2.0 */
/* workers_test.c - jobs in worker processes, also in ones that were taken over. */
#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/workers.h"

enum { WORKERS_SOCKET = 3, BIG = 3 * 1024 * 1024, MANY = 80, HUNG = 20 };

static struct loop loop;
static bool is_lost;

struct asked {
    struct job job;
    unsigned count;
    enum job_end end;
    size_t length;
    char reply[512];
};

static unsigned open_jobs;

static void on_done(struct job *job, enum job_end end, const void *reply, size_t length)
{
    struct asked *asked = container_of(job, struct asked, job);

    asked->count++;
    asked->end = end;
    asked->length = length;
    if (reply)
        memcpy(asked->reply, reply, length < sizeof(asked->reply) ? length : sizeof(asked->reply));
    if (--open_jobs == 0)
        loop_stop(&loop);
}

static void start(struct asked *asked, const struct job_request *request)
{
    open_jobs++;
    *asked = (struct asked){.count = 0};
    assert_int_equal(job_start(&asked->job, request), 0);
}

static void ask(struct asked *asked, job_act *act, const char *text, int fd, uint64_t deadline_ns)
{
    start(asked, &(struct job_request){.act = act,
                                       .data = text,
                                       .length = strlen(text) + 1,
                                       .fds = {fd, -1},
                                       .allowed_ns = deadline_ns,
                                       .done = on_done});
}

static struct asked run(job_act *act, const char *text, int fd, uint64_t deadline_ns)
{
    struct asked asked;

    ask(&asked, act, text, fd, deadline_ns);
    loop_run(&loop);
    assert_int_equal(asked.count, 1);
    return asked;
}

static const uint64_t SOON = 5 * NSEC_PER_SEC;

/* ---- acts ---- */

static void echo(const struct job_input *input, struct buffer *reply)
{
    (void)buffer_append(reply, input->request, input->length);
}

static void say_much(const struct job_input *input, struct buffer *reply)
{
    char bytes[4096];

    (void)input;
    memset(bytes, 'x', sizeof(bytes));
    for (size_t i = 0; i < BIG / sizeof(bytes); i++)
        (void)buffer_append(reply, bytes, sizeof(bytes));
}

static void say_too_much(const struct job_input *input, struct buffer *reply)
{
    for (unsigned i = 0; i < 6; i++)
        say_much(input, reply);
}

static void read_descriptor(const struct job_input *input, struct buffer *reply)
{
    char bytes[16] = "";

    if (input->fds[1] == -1 && read(input->fds[0], bytes, sizeof(bytes) - 1) > 0)
        (void)buffer_append(reply, bytes, strlen(bytes) + 1);
}

static void act_when_told(const struct job_input *input, struct buffer *reply)
{
    (void)send(input->fds[0], "ready", 5, 0);
    job_await_go();
    (void)send(input->fds[0], "done", 4, 0);
    (void)buffer_append(reply, "acted", 6);
}

static void say_pid(const struct job_input *input, struct buffer *reply)
{
    (void)input;
    (void)buffer_append_format(reply, "%d", (int)getpid());
    (void)buffer_append(reply, "", 1);
}

static void hang(const struct job_input *input, struct buffer *reply)
{
    (void)input, (void)reply;
    for (;;)
        (void)pause();
}

static void crash(const struct job_input *input, struct buffer *reply)
{
    (void)input, (void)reply;
    (void)signal(SIGABRT, SIG_DFL);
    _exit(7);
}

/* Says what is no reply. */
static void lie(const struct job_input *input, struct buffer *reply)
{
    static const struct {
        uint64_t length;
        char text[8];
    } lies[] = {{UINT64_MAX, "long"}, {3, "short"}, {0, "nothing"}, {1U << 30, ""}};
    unsigned number = (unsigned)(*(const char *)input->request - '0');

    (void)reply;
    if (number < array_length(lies))
        (void)send(WORKERS_SOCKET, &lies[number], sizeof(lies[0]), 0);
    else
        (void)send(WORKERS_SOCKET, "x", 1, 0);
    hang(input, reply);
}

/* A memory that can still be changed, in the place of a sealed one. */
static void pass_unsealed_memory(const struct job_input *input, struct buffer *reply)
{
    uint64_t length = 5;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec piece = {&length, sizeof(length)};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};

    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.header), &input->fds[0], sizeof(int));
    (void)sendmsg(WORKERS_SOCKET, &message, 0);
    hang(input, reply);
}

static void note(struct buffer *reply, const char *what, bool is_possible)
{
    if (is_possible)
        (void)buffer_append_format(reply, "%s ", what);
}

/* What a worker that was taken over can still do. */
static void try_everything(const struct job_input *input, struct buffer *reply)
{
    const char *path = input->request;
    char *const arguments[] = {(char *)(uintptr_t) "true", NULL};
    unsigned descriptors = 0;
    DIR *directory = opendir("/proc/self/fd");

    note(reply, "write", open(path, O_WRONLY | O_CLOEXEC) >= 0);
    note(reply, "append", open(path, O_RDWR | O_APPEND | O_CLOEXEC) >= 0);
    note(reply, "create", openat(AT_FDCWD, "new", O_RDONLY | O_CREAT | O_CLOEXEC, 0600) >= 0);
    note(reply, "unlink", unlink(path) == 0);
    note(reply, "rename", rename(path, "other") == 0);
    note(reply, "chmod", chmod(path, 0777) == 0);
    note(reply, "truncate", truncate(path, 0) == 0);
    note(reply, "inet", socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) >= 0);
    note(reply, "kill", kill(getppid(), 0) == 0);
    (void)execve("/bin/true", arguments, NULL);
    while (directory && readdir(directory))
        descriptors++;
    note(reply, "descriptors", descriptors > 2 + 4 + 1 + 1); /* . .. 0-3, the job's, this one */
    (void)buffer_append(reply, "", 1);
}

/* ---- tests ---- */

static void a_job_is_answered(void **state)
{
    struct asked asked = run(echo, "hello", -1, SOON);

    (void)state;
    assert_int_equal(asked.end, JOB_ANSWERED);
    assert_string_equal(asked.reply, "hello");
    assert_int_equal(asked.length, 6);
}

static void a_reply_of_nothing_is_one(void **state)
{
    struct asked asked = run(echo, "", -1, SOON);

    (void)state;
    assert_int_equal(asked.end, JOB_ANSWERED);
}

static void a_large_reply_comes_whole(void **state)
{
    struct asked asked = run(say_much, "", -1, SOON);

    (void)state;
    assert_int_equal(asked.end, JOB_ANSWERED);
    assert_int_equal(asked.length, BIG);
    assert_memory_equal(asked.reply, "xxxxxxxx", 8);
    assert_int_equal(run(say_too_much, "", -1, SOON).end, JOB_DIED);
    assert_string_equal(run(echo, "again", -1, SOON).reply, "again");
}

static void descriptors_go_with_a_job(void **state)
{
    int ends[2];

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(write(ends[1], "passed", 6), 6);
    assert_string_equal(run(read_descriptor, "", ends[0], SOON).reply, "passed");
    fd_close(ends[0]);
    fd_close(ends[1]);
}

/* Its deadline is not waited for. */
static void a_job_that_cannot_be_sent_ends(void **state)
{
    struct workers_status status;

    (void)state;
    assert_int_equal(run(echo, "", 12345, 600 * NSEC_PER_SEC).end, JOB_DIED);
    workers_get_status(&status);
    assert_int_equal(status.waiting + status.busy, 0);
}

static void a_worker_is_used_again(void **state)
{
    struct workers_status status;
    char first[16];

    (void)state;
    (void)run(echo, "", -1, SOON); /* has one made if one has died */
    for (workers_get_status(&status); status.ready < WORKERS_READY; workers_get_status(&status))
        loop_run_once(&loop); /* one that is made meanwhile would be the next */
    memcpy(first, run(say_pid, "", -1, SOON).reply, sizeof(first));
    for (unsigned i = 0; i < 4; i++)
        assert_string_equal(run(say_pid, "", -1, SOON).reply, first);
}

static void a_job_ends_at_its_deadline(void **state)
{
    (void)state;
    assert_int_equal(run(hang, "", -1, 20 * NSEC_PER_MSEC).end, JOB_LATE);
    assert_string_equal(run(echo, "next", -1, SOON).reply, "next");
}

static void a_worker_that_dies_ends_its_job(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2 * WORKERS_READY; i++)
        assert_int_equal(run(crash, "", -1, SOON).end, JOB_DIED);
    assert_string_equal(run(echo, "next", -1, SOON).reply, "next");
}

static void what_is_no_reply_is_refused(void **state)
{
    (void)state;
    assert_int_equal(run(lie, "0", -1, SOON).end, JOB_DIED);
    assert_int_equal(run(lie, "1", -1, SOON).end, JOB_DIED);
    assert_int_equal(run(lie, "2", -1, SOON).end, JOB_DIED);
    assert_int_equal(run(lie, "3", -1, SOON).end, JOB_DIED);
    assert_int_equal(run(lie, "4", -1, SOON).end, JOB_DIED);
}

static void memory_without_seals_is_refused(void **state)
{
    FILE *file = tmpfile();

    (void)state;
    assert_true(file && fputs("12345", file) >= 0 && fflush(file) == 0);
    assert_int_equal(run(pass_unsealed_memory, "", fileno(file), SOON).end, JOB_DIED);
    (void)fclose(file);
}

static void a_cancelled_job_says_nothing(void **state)
{
    struct asked cancelled[2 * WORKERS_READY];

    (void)state;
    for (size_t i = 0; i < array_length(cancelled); i++)
        ask(&cancelled[i], hang, "", -1, SOON);
    for (size_t i = 0; i < array_length(cancelled); i++, open_jobs--)
        job_cancel(&cancelled[i].job);
    assert_string_equal(run(echo, "next", -1, SOON).reply, "next");
    for (size_t i = 0; i < array_length(cancelled); i++)
        assert_int_equal(cancelled[i].count, 0);
}

static void ask_ahead(struct asked *asked, job_act *act, int fd)
{
    start(asked,
          &(struct job_request){
              .act = act, .fds = {fd, -1}, .allowed_ns = SOON, .is_ahead = true, .done = on_done});
}

/* A permission that comes after the reply is not the next job's. */
static void a_job_that_was_started_ahead_waits_to_act(void **state)
{
    struct asked has_nothing_to_do, ahead;
    char bytes[16] = "";
    int ends[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    ask_ahead(&has_nothing_to_do, echo, -1);
    job_go(&has_nothing_to_do.job);
    loop_run(&loop);
    assert_int_equal(has_nothing_to_do.end, JOB_ANSWERED);
    ask_ahead(&ahead, act_when_told, ends[1]);
    assert_int_equal(recv(ends[0], bytes, sizeof(bytes), 0), 5);
    (void)usleep(50000);
    assert_int_equal(recv(ends[0], bytes, sizeof(bytes), MSG_DONTWAIT), -1);
    job_go(&ahead.job);
    loop_run(&loop);
    assert_string_equal(ahead.reply, "acted");
    assert_int_equal(recv(ends[0], bytes, sizeof(bytes), 0), 4);
    fd_close(ends[0]);
    fd_close(ends[1]);
}

static void jobs_wait_for_workers(void **state)
{
    static struct asked asked[MANY];

    (void)state;
    for (size_t i = 0; i < MANY; i++) {
        ask_ahead(&asked[i], act_when_told, -1);
        job_go(&asked[i].job);
    }
    loop_run(&loop);
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(asked[i].end, JOB_ANSWERED);
}

/* More workers hang than are kept ready: the healthy jobs do not wait for their deadlines. */
static void hung_workers_are_replaced(void **state)
{
    static struct asked hung[HUNG], healthy;
    struct workers_status status;

    (void)state;
    for (size_t i = 0; i < HUNG; i++)
        ask(&hung[i], hang, "", -1, 60 * NSEC_PER_SEC);
    ask(&healthy, echo, "healthy", -1, 30 * NSEC_PER_SEC);
    while (healthy.count == 0)
        loop_run_once(&loop);
    assert_int_equal(healthy.end, JOB_ANSWERED);
    workers_get_status(&status);
    assert_int_equal(status.busy, HUNG);
    for (size_t i = 0; i < HUNG; i++, open_jobs--)
        job_cancel(&hung[i].job);
}

/* There is an end to it: the last jobs end without a worker. */
static void workers_are_bounded(void **state)
{
    static struct asked hung[MANY];
    unsigned late = 0, waited = 0;

    (void)state;
    for (size_t i = 0; i < MANY; i++)
        ask(&hung[i], hang, "", -1, NSEC_PER_SEC);
    loop_run(&loop);
    for (size_t i = 0; i < MANY; i++) {
        late += hung[i].end == JOB_LATE;
        waited += hung[i].end == JOB_WAITED;
    }
    assert_int_equal(late + waited, MANY);
    assert_true(late >= WORKERS_READY &&
                waited > 0); /* who has the place of a killed one is late, too */
    assert_string_equal(run(echo, "next", -1, SOON).reply, "next");
}

static void a_worker_can_do_little(void **state)
{
    char path[] = "/tmp/crust-workers-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);
    struct asked asked;

    (void)state;
    assert_true(fd >= 0);
    asked = run(try_everything, path, fd, SOON);
    assert_int_equal(asked.end, JOB_ANSWERED);
    assert_string_equal(asked.reply, "");
    fd_close(fd);
    assert_int_equal(unlink(path), 0);
}

static void a_large_request_comes_whole(void **state)
{
    static char text[400 * 1024];
    FILE *file = tmpfile();
    struct asked asked;

    (void)state;
    memset(text, 'y', sizeof(text) - 1);
    assert_non_null(file);
    asked = run(echo, text, fileno(file), SOON);
    assert_int_equal(asked.end, JOB_ANSWERED);
    assert_int_equal(asked.length, sizeof(text));
    assert_memory_equal(asked.reply, text, sizeof(asked.reply));
    (void)fclose(file);
}

static void a_large_request_is_refused(void **state)
{
    static char bytes[JOB_REQUEST_BYTES + 1];
    struct job job = {.is_running = false};
    const struct job_request request = {.act = echo,
                                        .data = bytes,
                                        .length = sizeof(bytes),
                                        .fds = {-1, -1},
                                        .allowed_ns = SOON,
                                        .done = on_done};

    (void)state;
    assert_int_equal(job_start(&job, &request), -EMSGSIZE);
}

static void on_lost(void *userdata)
{
    (void)userdata;
    is_lost = true;
    loop_stop(&loop);
}

/* The last test. The nursery is the only child. */
static void the_nursery_is_missed(void **state)
{
    char path[64], text[32];
    FILE *file;

    (void)state;
    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    file = fopen(path, "re");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    (void)fclose(file);
    assert_int_equal(kill((pid_t)strtol(text, NULL, 10), SIGKILL), 0);
    loop_run(&loop);
    assert_true(is_lost);
}

static int set_up(void **state)
{
    (void)state;
    if (workers_fork_nursery() < 0 || loop_init(&loop) < 0)
        return -1;
    workers_start(&loop, on_lost, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    workers_stop();
    loop_done(&loop);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_is_answered),
        cmocka_unit_test(a_reply_of_nothing_is_one),
        cmocka_unit_test(a_large_reply_comes_whole),
        cmocka_unit_test(descriptors_go_with_a_job),
        cmocka_unit_test(a_job_that_cannot_be_sent_ends),
        cmocka_unit_test(a_worker_is_used_again),
        cmocka_unit_test(a_job_ends_at_its_deadline),
        cmocka_unit_test(a_worker_that_dies_ends_its_job),
        cmocka_unit_test(what_is_no_reply_is_refused),
        cmocka_unit_test(memory_without_seals_is_refused),
        cmocka_unit_test(a_cancelled_job_says_nothing),
        cmocka_unit_test(a_job_that_was_started_ahead_waits_to_act),
        cmocka_unit_test(jobs_wait_for_workers),
        cmocka_unit_test(hung_workers_are_replaced),
        cmocka_unit_test(workers_are_bounded),
        cmocka_unit_test(a_worker_can_do_little),
        cmocka_unit_test(a_large_request_comes_whole),
        cmocka_unit_test(a_large_request_is_refused),
        cmocka_unit_test(the_nursery_is_missed),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
