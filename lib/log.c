/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - one line, one write(2).
 *
 * A line is put together in a fixed array on the stack and handed to the kernel in one piece, so
 * that lines of several processes do not mix on a shared stderr. Every value goes through
 * text_escape(): nothing from outside reaches the output as it was. While text is appended,
 * LINE_TAIL bytes stay free for what closes the line, which is therefore well-formed even when cut.
 *
 * The settings are the one piece of process-wide state: a log line must be possible from anywhere.
 */
#include "lib/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/text.h"

enum { LINE_TAIL = 3 }; /* quote, brace, newline */

static struct {
    enum log_level level;
    enum log_format format;
    int fd;
    bool to_journal; /* journald reads fd */
    const char *node;
    log_namer *namer;
    void *userdata; /* the namer's */
} settings = {.level = LOG_INFO, .format = LOG_LOGFMT, .fd = STDERR_FILENO};

/* syslog(3)'s, by which journalctl -p selects. */
static const char *const priorities[] = {
    [LOG_ERROR] = "<3>",
    [LOG_WARNING] = "<4>",
    [LOG_INFO] = "<6>",
    [LOG_DEBUG] = "<7>",
};

static const char *const level_names[] = {
    [LOG_ERROR] = "error",
    [LOG_WARNING] = "warning",
    [LOG_INFO] = "info",
    [LOG_DEBUG] = "debug",
};

static const char *const format_names[] = {
    [LOG_LOGFMT] = "logfmt",
    [LOG_JSON] = "json",
};

struct line {
    char text[LOG_LINE_BYTES];
    size_t start, length; /* the first field begins at start */
};

/* systemd puts DEVICE:INODE of the stream to journald into the environment: systemd.exec(5). A
 * program that inherited the variable and has another stderr differs in them. */
static bool leads_to_journal(int fd)
{
    const char *stream = getenv("JOURNAL_STREAM");
    char own[48];
    struct stat st;

    if (!stream || fstat(fd, &st) < 0)
        return false;
    (void)snprintf(own, sizeof(own), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    return strcmp(stream, own) == 0;
}

void log_configure(enum log_level level, enum log_format format)
{
    settings.level = level;
    settings.format = format;
    settings.to_journal = leads_to_journal(settings.fd);
}

void log_set_node(const char *name)
{
    settings.node = name;
}

const char *log_priority(enum log_level level)
{
    return settings.to_journal ? priorities[level] : "";
}

const char *log_node(void)
{
    return settings.node ? settings.node : "";
}

void log_set_namer(log_namer *namer, void *userdata)
{
    settings.namer = namer;
    settings.userdata = userdata;
}

void log_set_descriptor(int fd)
{
    settings.fd = fd;
}

bool log_enabled(enum log_level level)
{
    return level <= settings.level;
}

int log_level_from_name(const char *name, enum log_level *ret_level)
{
    const unsigned levels = array_length(level_names);
    unsigned level = name_table_find(level_names, sizeof(*level_names), levels, name, levels);

    if (level == levels)
        return -EINVAL;
    *ret_level = (enum log_level)level;
    return 0;
}

int log_format_from_name(const char *name, enum log_format *ret_format)
{
    const unsigned formats = array_length(format_names);
    unsigned format = name_table_find(format_names, sizeof(*format_names), formats, name, formats);

    if (format == formats)
        return -EINVAL;
    *ret_format = (enum log_format)format;
    return 0;
}

/* Room for text, apart from the bytes reserved for the end of the line. */
static size_t line_room(const struct line *line)
{
    size_t end = sizeof(line->text) - LINE_TAIL;

    return line->length < end ? end - line->length : 0;
}

/* Appends all of it or nothing. */
static bool line_append(struct line *line, const char *text, size_t length)
{
    if (length > line_room(line))
        return false;
    memcpy(line->text + line->length, text, length);
    line->length += length;
    return true;
}

/* Closes a value or the line: room for this is reserved. */
static void line_close(struct line *line, char character)
{
    line->text[line->length++] = character;
}

/* A value that logfmt can show without quotes. */
static bool is_plain(const char *text)
{
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                 "@-./:_+,");

    return length > 0 && text[length] == '\0';
}

static void line_append_quoted(struct line *line, const char *text)
{
    if (!line_append(line, "\"", 1))
        return;
    line->length +=
        text_escape(&text, text + strlen(text), line->text + line->length, line_room(line));
    line_close(line, '"');
}

/* "key=" or "\"key\":" and the value. A field whose value would not fit is left out as a whole. */
static void line_append_field(struct line *line, const char *key, const char *value, bool quoted)
{
    bool json = settings.format == LOG_JSON;

    if (strlen(key) + 4 + LINE_TAIL > line_room(line))
        return;
    if (line->length > line->start)
        (void)line_append(line, json ? "," : " ", 1);
    if (json)
        (void)line_append(line, "\"", 1);
    (void)line_append(line, key, strlen(key));
    (void)line_append(line, json ? "\":" : "=", json ? 2 : 1);
    if (quoted)
        line_append_quoted(line, value);
    else
        (void)line_append(line, value, strlen(value));
}

static void line_append_text(struct line *line, const char *key, const char *value)
{
    if (value && *value)
        line_append_field(line, key, value, settings.format == LOG_JSON || !is_plain(value));
}

static void line_append_ids(struct line *line, const struct log_ids *ids)
{
    char number[24], pv[LOG_PV_BYTES] = "";

    if (ids->volume) {
        (void)snprintf(number, sizeof(number), "%" PRId64, ids->volume);
        line_append_field(line, "volume", number, false);
    }
    if (ids->volume && !ids->pv && settings.namer)
        settings.namer(settings.userdata, ids->volume, pv);
    line_append_text(line, "pv", ids->pv ? ids->pv : pv);
    line_append_text(line, "sandbox", ids->sandbox);
    line_append_text(line, "device", ids->device);
    line_append_text(line, "source", ids->source);
}

void log_write(enum log_level level, const struct log_ids *ids, const char *format, ...)
{
    int saved = errno;
    struct line line;
    char message[LOG_LINE_BYTES], now[CLOCK_TEXT_BYTES];
    va_list arguments;
    ssize_t written;

    if (!log_enabled(level))
        return;
    line.length = 0;
    va_start(arguments, format);
    (void)vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    clock_text(clock_realtime_ms(), now);

    (void)line_append(&line, log_priority(level), strlen(log_priority(level)));
    if (settings.format == LOG_JSON)
        (void)line_append(&line, "{", 1);
    line.start = line.length;
    if (!settings.to_journal)
        line_append_text(&line, "time", now);
    line_append_text(&line, "level", level_names[level]);
    line_append_text(&line, "node", settings.node);
    if (ids)
        line_append_ids(&line, ids);
    line_append_field(&line, "msg", message, true);
    if (settings.format == LOG_JSON)
        line_close(&line, '}');
    line_close(&line, '\n');
    /* A log that cannot be written has nowhere to say so. */
    do
        written = write(settings.fd, line.text, line.length);
    while (written < 0 && errno == EINTR);
    errno = saved;
}

/* ---- line output ---------------------------------------------------------------------------- */

/* O_NONBLOCK belongs to the open file and not to the descriptor, so setting it would change the
 * descriptors of all processes that share it: a shell's terminal, the log on stderr. Therefore a
 * pipe, a terminal or a file is opened anew through /proc/self/fd. Where that is not allowed,
 * poll(2) says whether a pipe has room for PIPE_BUF bytes, which is the most that is written at
 * once.
 */

void line_output_init(struct line_output *output, int fd)
{
    char path[32];
    struct stat status;

    *output = (struct line_output){.fd = fd};
    output->is_socket = fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
    if (output->is_socket)
        return;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    output->fd = open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    output->is_own = output->fd >= 0;
    if (output->is_own)
        return;
    output->fd = fd;
    output->may_block = true;
}

void line_output_done(struct line_output *output)
{
    if (output->is_own)
        fd_close(output->fd);
    output->is_own = false;
}

/* How many bytes were taken, or -errno. */
static ssize_t write_now(const struct line_output *output, const char *data, size_t length)
{
    struct pollfd ready = {.fd = output->fd, .events = POLLOUT};
    ssize_t written;

    if (output->may_block && poll(&ready, 1, 0) == 0)
        return LINE_OUTPUT_FULL;
    do
        written = output->is_socket ? send(output->fd, data, length, MSG_DONTWAIT | MSG_NOSIGNAL)
                                    : write(output->fd, data, length);
    while (written < 0 && errno == EINTR);
    return written < 0 ? -errno : written > 0 ? written : -EIO;
}

/* A line of which the end was dropped is ended first, so that this one is readable. */
static int write_line(struct line_output *output, const char *line, size_t length)
{
    ssize_t written = output->is_mid_line ? write_now(output, "\n", 1) : 0;

    if (written < 0)
        return (int)written;
    written = write_now(output, line, length);
    output->is_mid_line = written > 0 && (size_t)written < length;
    return written < 0 ? (int)written : output->is_mid_line ? LINE_OUTPUT_FULL : 0;
}

int line_output_write(struct line_output *output, const char *lines, size_t length)
{
    int failure = 0;

    while (length) {
        const char *end = memchr(lines, '\n', length);
        const size_t line = end ? (size_t)(end - lines) + 1 : length;
        const int r = write_line(output, lines, line);

        if (r == 0)
            output->written++;
        else
            output->dropped++;
        failure = r < 0 ? r : failure;
        lines += line;
        length -= line;
    }
    return failure;
}
