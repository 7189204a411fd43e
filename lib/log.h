/* SPDX-License-Identifier: Apache-2.0 */
/* log.h - lines on stderr, as logfmt or JSON, each with the ids it is about.
 *
 *     log_info(&(struct log_ids){.volume = 7, .sandbox = "a1b2"}, "device grew to %" PRIu64, n);
 *     time=2026-01-02T03:04:05.678Z level=info node=n1 volume=7 pv=pvc-7 sandbox=a1b2 msg="device
 * …"
 *
 * Values are escaped (control characters, quotes, invalid UTF-8), so that a name from outside can
 * neither forge a line nor break a parser. errno is preserved. A line is one write(2) of at most
 * LOG_LINE_BYTES; longer text is cut.
 *
 * reconciler/ and the main programs log. lib/, store/, config/ and the codecs return errors
 * instead.
 */
#pragma once

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LOG_LINE_BYTES = 4096 };

enum log_level {
    LOG_ERROR,
    LOG_WARNING,
    LOG_INFO,
    LOG_DEBUG,
};

enum log_format {
    LOG_LOGFMT,
    LOG_JSON,
};

/* What a line is about. Zero, NULL and empty members are left out. A volume's PV name is added
 * where it is not given. */
struct log_ids {
    int64_t volume;      /* volume_id */
    const char *sandbox; /* sandbox id */
    const char *device;  /* kernel name, /dev/loop0 */
    const char *source;  /* inotify, uevent, mounts, … */
    const char *pv;      /* the volume's PV name, where it is at hand; NULL: it is asked for */
};

enum { LOG_PV_BYTES = 256 };

/* Fills in the PV name of a volume; leaves ret_pv alone if it is not known. Must not log. */
typedef void log_namer(void *userdata, int64_t volume, char ret_pv[static LOG_PV_BYTES]);

/* Process-wide: set once by main before anything logs. Defaults: LOG_INFO, LOG_LOGFMT, stderr.
 * Where journald reads the stream, a line begins with its priority (sd-daemon(3)) and has no time,
 * because journald has both. */
void log_configure(enum log_level level, enum log_format format);
const char *log_priority(enum log_level level); /* "<3>", …; "" where journald does not read it */
void log_set_node(const char *name);            /* on every line; borrowed; "" none */
const char *log_node(void);                     /* "" if none was set */
/* Called for each line about a volume, so that callers need not know the PV name. NULL: none. */
void log_set_namer(log_namer *namer, void *userdata);
void log_set_descriptor(int fd); /* for tests; not owned */
bool log_enabled(enum log_level level);

/* "error", "warning", "info", "debug"; "logfmt", "json". 0 or -EINVAL. */
int log_level_from_name(const char *name, enum log_level *ret_level);
int log_format_from_name(const char *name, enum log_format *ret_format);

void log_write(enum log_level level, const struct log_ids *ids, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_error(ids, ...)   log_write(LOG_ERROR, ids, __VA_ARGS__)
#define log_warning(ids, ...) log_write(LOG_WARNING, ids, __VA_ARGS__)
#define log_info(ids, ...)    log_write(LOG_INFO, ids, __VA_ARGS__)
#define log_debug(ids, ...)                                                                        \
    do {                                                                                           \
        if (log_enabled(LOG_DEBUG))                                                                \
            log_write(LOG_DEBUG, ids, __VA_ARGS__);                                                \
    } while (0)

/* ---- line output ---------------------------------------------------------------------------- */

/* Lines written to a descriptor that may be full or gone, without waiting for it.
 *
 * For stdout, which a container engine, journald or a shell has opened, and which others write to
 * as well: its flags are left alone. Each line is written in one piece, so that it does not mix
 * with what others write to the same pipe. A line that cannot be written now is dropped and
 * counted.
 */

/* The longest line, with its end: a pipe takes as much in one piece (POSIX: PIPE_BUF). */
enum { LINE_OUTPUT_LINE_BYTES = PIPE_BUF };

struct line_output {
    uint64_t written, dropped; /* lines, since the beginning */
    /* The rest is private. */
    int fd;
    bool is_own;      /* opened here */
    bool is_socket;   /* MSG_DONTWAIT says what O_NONBLOCK says elsewhere */
    bool may_block;   /* could not be opened anew: poll(2) is asked before each write */
    bool is_mid_line; /* a line was written in part */
};

/* fd: borrowed, and stays as it is. */
void line_output_init(struct line_output *output, int fd);
void line_output_done(struct line_output *output);

enum line_output_failure { LINE_OUTPUT_FULL = -EAGAIN };

/* Whole lines of at most LINE_OUTPUT_LINE_BYTES. 0, or why the last line that was dropped was: FULL
 * or another -errno. */
int line_output_write(struct line_output *output, const char *lines, size_t length);
