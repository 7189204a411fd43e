/* SPDX-License-Identifier: Apache-2.0 */
/* workers.h - processes for what may hang: talking to a VMM or a guest, reading foreign files.
 *
 * A job is one function, written in straight lines, that runs in a worker process: one message in
 * (the request and some descriptors), one message out (the reply). The worker is killed when the
 * job's deadline is over. Workers are forked by a small process, the nursery, which was forked
 * before the daemon had opened anything. Some are kept ready, because forking on the way of a job
 * would cost it a millisecond; more are made while jobs wait for workers that are silent.
 *
 * A worker may be taken over by what it talks to. It has no descriptor of the daemon's but those of
 * its job, it has lost most capabilities, it can execute no program and change no file system, and
 * its reply has to be checked like any input from outside.
 *
 * (The model is OpenBSD's privilege separation: bgpd(8), imsg_init(3).)
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/buffer.h"
#include "lib/loop.h"
#include "lib/result.h"

enum {
    JOB_REQUEST_BYTES = 1024 * 1024, /* above 64 KiB in a sealed memfd, like a reply */
    JOB_REPLY_BYTES = 16 * 1024 * 1024,
    JOB_DESCRIPTORS = 2,
    WORKERS_READY = 8,
    WORKERS_MOST = 64,
};

/* What the worker has of a job. The descriptors are closed after it. */
struct job_input {
    const void *request;
    size_t length;
    int fds[JOB_DESCRIPTORS]; /* as many as the request came with, then -1 */
    uint64_t deadline_ns;     /* CLOCK_BOOTTIME */
};

/* Runs in the worker, and appends the reply. */
typedef void job_act(const struct job_input *input, struct buffer *reply);

/* In the worker, before anything is changed: a job that was started ahead waits here for job_go().
 */
void job_await_go(void);

/* In the worker: gives the daemon a descriptor ahead of the reply, and closes it. 0 or -errno. */
int job_give(int fd);

enum job_end {
    JOB_ANSWERED,
    JOB_LATE,   /* the deadline was over: the worker was killed */
    JOB_DIED,   /* the worker crashed, was killed by somebody, or sent what is no reply */
    JOB_WAITED, /* the deadline was over before a worker was free */
};

struct job;

/* Comes once, from the loop, unless the job was cancelled. `reply` is valid during the call; it is
 * NULL unless the job was ANSWERED. The job may be started anew or freed. */
typedef void job_done(struct job *job, enum job_end end, const void *reply, size_t length);

/* During `done`: the descriptor that the worker gave, or -1. The caller owns and checks it. */
int job_take_given(void);

struct job_request {
    job_act *act;
    const void *data; /* copied; at most JOB_REQUEST_BYTES */
    size_t length;
    int fds[JOB_DESCRIPTORS]; /* borrowed until done; -1: none, and none after it */
    uint64_t allowed_ns;      /* from its start to its reply */
    uint64_t subject;         /* what it may wait for without end, as in child.h; 0: nothing */
    bool is_ahead;        /* its intent is not committed yet: it reads, and acts after job_go() */
    unsigned processor_s; /* of processor time, at most; 0: 5 s */
    job_done *done;
};

/* Embedded in its owner; zero-initialise. */
struct job {
    struct worker *worker;   /* NULL: it waits for one, or is not running */
    struct job *prev, *next; /* of those that wait */
    struct job_request request;
    void *message; /* what is sent; owned */
    int memory;    /* of a large request, while the job runs; -1: none */
    struct loop_timer deadline;
    bool is_running;
};

/* Call it first thing in main(), before anything is opened. 0 or -errno. */
int workers_fork_nursery(void);

/* `lost` is called when the nursery has died: no worker can be made any more, so the daemon has to
 * be started anew. */
void workers_start(struct loop *loop, void (*lost)(void *userdata), void *userdata);

/* The process whose children the workers are; 0: none was made. */
pid_t workers_parent(void);

/* Kills all workers and has the nursery end. Jobs must have been cancelled. */
void workers_stop(void);

/* 0, -EMSGSIZE, -ENOMEM; CHILD_STILL_HANGS and CHILD_TOO_MANY_HANG (child.h) of jobs with a
 * subject; another -errno: a large request finds no memory. */
int job_start(struct job *job, const struct job_request *request);

/* The intent is committed: a job that was started ahead may act. */
void job_go(struct job *job);

/* Kills the job's worker; `done` does not come. A job that is not running is left alone. */
void job_cancel(struct job *job);

struct workers_status {
    unsigned ready, busy;
    unsigned dying;      /* killed, and not dead yet: a call in the kernel holds it */
    unsigned waiting;    /* jobs without a worker */
    uint64_t late, died; /* jobs that ended so */
    uint64_t answered;
};

void workers_get_status(struct workers_status *ret_status);

/* ---- messages ------------------------------------------------------------------------------- */

/* Requests and replies as plain structs. A request is one struct, in which each text is an offset,
 * and then the texts. A reply is one struct, and perhaps bytes after it. Its fields are checked
 * with the functions below: what a worker talks to may have taken it over. */
/* Members of a request that are texts, NULL included: one pointer, or an array of them. A list ends
 * with a count of 0. */
struct job_texts {
    size_t offset, count;
};

struct job_message {
    const void *request;
    size_t size;
    const struct job_texts *texts;
    const void *bytes; /* that follow, up to the end of the message; NULL: none */
    size_t length;
};

/* Starts a job with this message in the place of the job request's data. 0 or -errno. */
int job_start_message(struct job *job, const struct job_message *message,
                      struct job_request job_request);

/* The same for a new owner of the job: `size` bytes of zeros, of which the job is the first. */
int job_new(size_t size, const struct job_message *message, struct job_request job_request,
            struct job **ret_job);
void *job_free(struct job *job); /* cancels the job and frees its owner; returns NULL */

/* In the worker: the request, whose texts are in the message. */
void job_read_message(const struct job_input *input, const struct job_texts *texts,
                      void *ret_request, size_t size);

/* Copies the struct that a reply begins with. */
bool job_take_reply(const void *bytes, size_t length, void *ret_reply, size_t size);

/* Whether a text in a field ends within it; whether a flag is one; whether an error has a text,
 * which is then made fit to be shown. */
#define job_is_text(array) job_text_fits(array, sizeof(array))
bool job_text_fits(const char *field, size_t size);
bool job_is_flag(const bool *field);
bool job_is_error(struct error *error);

/* Why a job has no reply, or none that is valid. */
const char *job_fault_text(enum job_end end);

/* ---- confinement ---------------------------------------------------------------------------- */

/* For the nursery, and so for the workers that it forks: no new privileges, the capabilities to see
 * into VMMs and to connect to their sockets only, and no system call that executes a program,
 * writes to a file system by a name, traces or signals a process, or mounts. 0 or -errno. */
int confine_workers(void);
