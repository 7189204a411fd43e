/* SPDX-License-Identifier: Apache-2.0 */
/* host.c - the host around crustd: monitors and agents of all its VMs, and devices that grow.
 *
 * Commands come on standard input, a line each:
 *
 *     sandbox MONITOR AGENT          its sockets' paths; AGENT may be "-", for none
 *     drive NODE FILE                of the last sandbox
 *     device LOOP BACKING            the last drive is this loop device, which can grow
 *     end MONITOR                    that sandbox's VM is no more
 *     serve                          says "ready", once all of the above stands
 *     grow ROUNDS PAUSE_US BYTES     each device in turn grows by so much, ROUNDS times
 *     hang NUMBER                    the VMM of that device does not answer block_resize any more
 *     together BYTES                 all devices grow at once, one that hangs before the others
 *
 * One growth at a time, or all together: the clock starts before the ioctl(2) that grows the
 * device, whose uevent the kernel sends before it returns. For each, a line "NODE TOLD GROWN":
 * nanoseconds until block_resize arrived at the monitor, and until the agent answered ResizeVolume
 * (0 without one). "done" ends them. The next one begins when the conversation is over, after a
 * pause around PAUSE_US.
 *
 * Monitors and agents are answered by the same thread that started the clock, so no time passes
 * between an arrival and its note but the wake-up.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <linux/loop.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tests/bench/agent.h"
#include "tests/bench/bench.h"
#include "tests/bench/monitor.h"
#include "tests/bench/sources.h"

enum { DEVICES = 64, LINE_BYTES = 16 * 1024 };

static const uint64_t give_up_ns = UINT64_C(60000000000), serve_ns = 1000000;

struct device {
    int loop, backing;
    off_t bytes;
    struct drive *drive;
    struct agent *agent; /* NULL: nobody is told after the monitor */
    uint64_t start_ns;
};

struct sandbox {
    struct sandbox *next;
    struct monitor *monitor;
    struct agent *agent; /* NULL: none */
    char path[];         /* of the monitor */
};

static struct sandbox *sandboxes; /* the last one first */
static struct drive *drive;
static struct device devices[DEVICES];
static unsigned device_count;

static void add_device(const char *loop, const char *backing)
{
    struct device *device = &devices[device_count++];

    if (device_count > DEVICES)
        fail("too many devices");
    device->loop = open(loop, O_RDONLY | O_CLOEXEC);
    device->backing = open(backing, O_RDWR | O_CLOEXEC);
    device->bytes = (off_t)file_bytes(backing);
    device->drive = drive;
    device->agent = sandboxes->agent;
    if (device->loop < 0 || device->backing < 0)
        fail(loop);
}

static void add_sandbox(const char *monitor, const char *agent)
{
    struct sandbox *sandbox = calloc(1, sizeof(*sandbox) + strlen(monitor) + 1);

    if (!sandbox)
        fail("calloc");
    strcpy(sandbox->path, monitor);
    sandbox->monitor = monitor_new(monitor);
    sandbox->agent = strcmp(agent, "-") == 0 ? NULL : agent_new(agent);
    sandbox->next = sandboxes;
    sandboxes = sandbox;
}

static void end_sandbox(const char *monitor)
{
    struct sandbox **link = &sandboxes, *sandbox;

    while (*link && strcmp((*link)->path, monitor) != 0)
        link = &(*link)->next;
    sandbox = *link;
    if (!sandbox)
        fail(monitor);
    *link = sandbox->next;
    monitor_close(sandbox->monitor);
    if (sandbox->agent)
        agent_close(sandbox->agent);
    free(sandbox);
}

static bool is_over(const struct device *device)
{
    if (!device->drive->checked_ns)
        return false;
    return !device->agent || device->agent->stats_ns > device->start_ns;
}

static void begin(struct device *device, off_t bytes)
{
    device->bytes += bytes;
    device->drive->resized_ns = device->drive->checked_ns = 0;
    if (ftruncate(device->backing, device->bytes) < 0)
        fail("ftruncate");
    device->start_ns = now_ns();
    if (ioctl(device->loop, LOOP_SET_CAPACITY) < 0)
        fail("LOOP_SET_CAPACITY");
}

static void wait_until_over(const struct device *device)
{
    while (!is_over(device)) {
        sources_serve(now_ns() + serve_ns);
        if (now_ns() - device->start_ns > give_up_ns)
            fail(device->drive->node);
    }
}

static void report(const struct device *device)
{
    (void)printf("%s %" PRIu64 " %" PRIu64 "\n", device->drive->node,
                 device->drive->resized_ns - device->start_ns,
                 device->agent ? device->agent->grown_ns - device->start_ns : 0);
}

static void report_end(void)
{
    (void)printf("done\n");
    (void)fflush(stdout);
}

static void grow_all(unsigned long rounds, uint64_t pause_ns, off_t bytes)
{
    for (unsigned long round = 0; round < rounds; round++)
        for (unsigned i = 0; i < device_count; i++) {
            begin(&devices[i], bytes);
            wait_until_over(&devices[i]);
            report(&devices[i]);
            sources_serve(now_ns() + random_around(pause_ns));
        }
    report_end();
}

static void grow_together(off_t bytes)
{
    for (unsigned hangs = 2; hangs-- > 0;)
        for (unsigned i = 0; i < device_count; i++)
            if (devices[i].drive->hangs == hangs)
                begin(&devices[i], bytes);
    for (unsigned i = 0; i < device_count; i++)
        if (!devices[i].drive->hangs)
            wait_until_over(&devices[i]);
    for (unsigned i = 0; i < device_count; i++)
        if (!devices[i].drive->hangs)
            report(&devices[i]);
    report_end();
}

static void obey(char *line)
{
    char *word[4] = {0}, *save = NULL;

    for (unsigned i = 0; i < 4; i++)
        word[i] = strtok_r(i ? NULL : line, " ", &save);
    if (word[0] && strcmp(word[0], "serve") == 0) {
        (void)printf("ready\n");
        (void)fflush(stdout);
    } else if (word[2] && strcmp(word[0], "sandbox") == 0) {
        add_sandbox(word[1], word[2]);
    } else if (word[1] && strcmp(word[0], "end") == 0) {
        end_sandbox(word[1]);
    } else if (word[2] && strcmp(word[0], "drive") == 0) {
        drive = monitor_add_drive(sandboxes->monitor, word[1], word[2]);
    } else if (word[2] && strcmp(word[0], "device") == 0) {
        add_device(word[1], word[2]);
    } else if (word[3] && strcmp(word[0], "grow") == 0) {
        grow_all(strtoul(word[1], NULL, 10), strtoull(word[2], NULL, 10) * 1000,
                 strtol(word[3], NULL, 10));
    } else if (word[1] && strcmp(word[0], "hang") == 0) {
        devices[strtoul(word[1], NULL, 10) % DEVICES].drive->hangs = true;
    } else if (word[1] && strcmp(word[0], "together") == 0) {
        grow_together(strtol(word[1], NULL, 10));
    } else {
        fail("a command");
    }
}

static void on_commands(struct source *source)
{
    static char lines[LINE_BYTES];
    static size_t length;
    ssize_t more = read(source->fd, lines + length, sizeof(lines) - 1 - length);
    char *end;

    if (more <= 0)
        exit(more < 0);
    length += (size_t)more;
    lines[length] = '\0';
    while ((end = strchr(lines, '\n'))) {
        char line[LINE_BYTES];

        *end = '\0';
        (void)snprintf(line, sizeof(line), "%s", lines);
        length -= (size_t)(end + 1 - lines);
        memmove(lines, end + 1, length + 1);
        obey(line);
    }
}

int main(void)
{
    static struct source commands = {STDIN_FILENO, on_commands};

    sources_add(&commands);
    for (;;)
        sources_serve(UINT64_MAX);
}
