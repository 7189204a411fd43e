/* SPDX-License-Identifier: Apache-2.0 */
/* monitor.c - see monitor.h.
 *
 * The commands are few and come from crustd or from hand_resize.c, so a line is searched for what
 * it needs and not parsed. Any number of clients is served, because nothing here depends on there
 * being only one.
 */
#include "tests/bench/monitor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/cleanup.h"
#include "tests/bench/bench.h"
#include "tests/bench/sources.h"

enum { LINE_BYTES = 4096, ANSWER_BYTES = 16 * 1024, WORD_BYTES = 64 };

struct monitor {
    struct source listener;
    struct drive *drives;
};

struct client {
    struct source source;
    struct monitor *monitor;
    size_t length;
    char line[LINE_BYTES];
};

struct answer {
    size_t length;
    char text[ANSWER_BYTES];
};

static __attribute__((format(printf, 2, 3))) void say(struct answer *answer, const char *format,
                                                      ...)
{
    size_t room = sizeof(answer->text) - answer->length;
    va_list arguments;

    va_start(arguments, format);
    answer->length += (size_t)vsnprintf(answer->text + answer->length, room, format, arguments);
    va_end(arguments);
    if (answer->length >= sizeof(answer->text))
        fail("a monitor's answer");
}

static void send_answer(const struct client *client, const struct answer *answer)
{
    (void)send(client->source.fd, answer->text, answer->length, MSG_NOSIGNAL);
}

/* The value of "key" in a line, quoted or a number; "" if it is not there. */
static void read_word(const char *line, const char *key, char ret_word[static WORD_BYTES])
{
    const char *at = strstr(line, key);

    at = at ? at + strlen(key) : "";
    at += strspn(at, "\": ");
    (void)snprintf(ret_word, WORD_BYTES, "%.*s", (int)strcspn(at, "\"},"), at);
}

/* ---- commands ---- */

static void say_node(struct answer *answer, const struct drive *drive, const char *name,
                     const char *driver)
{
    say(answer,
        "{\"node-name\":\"%s\",\"drv\":\"%s\",\"file\":\"%s\",\"ro\":false,\"image\":"
        "{\"virtual-size\":%" PRIu64 ",\"filename\":\"%s\",\"format\":\"%s\"}}",
        name, driver, drive->file, drive->bytes, drive->file, driver);
}

static const char *protocol_of(const struct drive *drive)
{
    return strncmp(drive->file, "/dev/", 5) == 0 ? "host_device" : "file";
}

static void query_block(struct answer *answer, struct monitor *monitor)
{
    say(answer, "[");
    for (struct drive *drive = monitor->drives; drive; drive = drive->next) {
        if (drive->resized_ns && !drive->checked_ns)
            drive->checked_ns = now_ns();
        say(answer,
            "{\"device\":\"\",\"qdev\":\"%s\",\"type\":\"unknown\",\"inserted\":", drive->node);
        say_node(answer, drive, drive->node, "raw");
        say(answer, "}%s", drive->next ? "," : "");
    }
    say(answer, "]");
}

static void query_nodes(struct answer *answer, const struct monitor *monitor)
{
    char name[WORD_BYTES];

    say(answer, "[");
    for (const struct drive *drive = monitor->drives; drive; drive = drive->next) {
        say_node(answer, drive, drive->node, "raw");
        (void)snprintf(name, sizeof(name), "#block-%.24s", drive->node);
        say(answer, ",");
        say_node(answer, drive, name, protocol_of(drive));
        say(answer, drive->next ? "," : "");
    }
    say(answer, "]");
}

/* Whether there is an answer. */
static bool resize(struct answer *answer, struct monitor *monitor, const char *line, uint64_t now)
{
    struct drive *drive = monitor->drives;
    char node[WORD_BYTES], size[WORD_BYTES];

    read_word(line, "\"node-name\"", node);
    read_word(line, "\"size\"", size);
    while (drive && strcmp(drive->node, node) != 0)
        drive = drive->next;
    if (!drive)
        fail(node);
    drive->resized_ns = now;
    if (drive->hangs)
        return false;
    drive->bytes = strtoull(size, NULL, 10);
    say(answer, "{}");
    return true;
}

static void obey(struct client *client, const char *line, uint64_t now)
{
    struct answer answer = {.length = 0};
    char command[WORD_BYTES], id[WORD_BYTES];
    bool answers = true;

    read_word(line, "\"execute\"", command);
    read_word(line, "\"id\"", id);
    say(&answer, "{\"return\":");
    if (strcmp(command, "block_resize") == 0)
        answers = resize(&answer, client->monitor, line, now);
    else if (strcmp(command, "query-block") == 0)
        query_block(&answer, client->monitor);
    else if (strcmp(command, "query-named-block-nodes") == 0)
        query_nodes(&answer, client->monitor);
    else
        say(&answer, strcmp(command, "query-fdsets") == 0 ? "[]" : "{}");
    say(&answer, ",\"id\":\"%s\"}\r\n", id);
    if (answers)
        send_answer(client, &answer);
}

/* ---- clients ---- */

static void on_client(struct source *source)
{
    struct client *client = container_of(source, struct client, source);
    ssize_t length = recv(source->fd, client->line + client->length,
                          sizeof(client->line) - 1 - client->length, 0);
    uint64_t now = now_ns();
    char *end;

    if (length <= 0) {
        sources_remove(source);
        free(client);
        return;
    }
    client->length += (size_t)length;
    client->line[client->length] = '\0';
    while ((end = strchr(client->line, '\n'))) {
        *end = '\0';
        obey(client, client->line, now);
        client->length -= (size_t)(end + 1 - client->line);
        memmove(client->line, end + 1, client->length + 1);
    }
}

static void on_listener(struct source *source)
{
    static const struct answer greeting = {
        .text = "{\"QMP\":{\"version\":{\"qemu\":{\"micro\":22,\"minor\":2,\"major\":7},"
                "\"package\":\"\"},\"capabilities\":[\"oob\"]}}\r\n",
    };
    struct answer answer = greeting;
    struct client *client = calloc(1, sizeof(*client));

    if (!client)
        fail("calloc");
    client->monitor = container_of(source, struct monitor, listener);
    client->source = (struct source){accept4(source->fd, NULL, NULL, SOCK_CLOEXEC), on_client};
    if (client->source.fd < 0)
        fail("accept4");
    sources_add(&client->source);
    answer.length = strlen(answer.text);
    send_answer(client, &answer);
}

struct monitor *monitor_new(const char *path)
{
    struct monitor *monitor = calloc(1, sizeof(*monitor));

    if (!monitor)
        fail("calloc");
    monitor->listener = (struct source){socket_listen(path), on_listener};
    sources_add(&monitor->listener);
    return monitor;
}

void monitor_close(struct monitor *monitor)
{
    sources_remove(&monitor->listener);
}

struct drive *monitor_add_drive(struct monitor *monitor, const char *node, const char *file)
{
    struct drive *drive = calloc(1, sizeof(*drive));

    if (!drive || !(drive->node = strdup(node)) || !(drive->file = strdup(file)))
        fail("calloc");
    drive->bytes = file_bytes(file);
    drive->next = monitor->drives;
    monitor->drives = drive;
    return drive;
}
