/* SPDX-License-Identifier: Apache-2.0 */
/* hand_resize.c - the steps of a growth up to block_resize, done by hand without a daemon:
 * hand_resize DEVICE NODE MONITOR [DEVICE NODE MONITOR]...
 *
 * A uevent of one of the devices, its size from sysfs, then what crustd asks the monitor, one
 * command after another, from connecting on. Nothing is checked, kept or written down; ends when
 * killed.
 */
#include <inttypes.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/bench/bench.h"

enum { KERNEL_GROUP = 1, UEVENT_BYTES = 16 * 1024, SECTOR_BYTES = 512 };

static int listen_to_kernel(void)
{
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = KERNEL_GROUP};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT);

    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
        fail("uevents");
    return fd;
}

static uint64_t read_size(const char *device)
{
    char path[128], text[32] = "";
    FILE *file;

    (void)snprintf(path, sizeof(path), "/sys/class/block/%s/size", device + strlen("/dev/"));
    file = fopen(path, "re");
    if (!file || !fgets(text, sizeof(text), file))
        fail(path);
    (void)fclose(file);
    return strtoull(text, NULL, 10) * SECTOR_BYTES;
}

/* One line, of which only the end matters. */
static void read_line(int fd)
{
    static char line[64 * 1024];
    size_t length = 0;

    while (length == 0 || line[length - 1] != '\n') {
        ssize_t more = recv(fd, line + length, sizeof(line) - length, 0);

        if (more <= 0)
            fail("a monitor's answer");
        length += (size_t)more;
    }
}

static void ask(int fd, const char *command)
{
    if (send(fd, command, strlen(command), MSG_NOSIGNAL) < 0)
        fail(command);
    read_line(fd);
}

static void resize(const char *monitor, const char *node, uint64_t bytes)
{
    int fd = socket_connect(monitor);
    char command[256];

    (void)snprintf(
        command, sizeof(command),
        "{\"execute\":\"block_resize\",\"arguments\":{\"node-name\":\"%s\",\"size\":%" PRIu64
        "}}\n",
        node, bytes);
    read_line(fd);
    ask(fd, "{\"execute\":\"qmp_capabilities\"}\n");
    ask(fd, "{\"execute\":\"query-block\"}\n");
    ask(fd, "{\"execute\":\"query-named-block-nodes\",\"arguments\":{\"flat\":true}}\n");
    ask(fd, "{\"execute\":\"query-fdsets\"}\n");
    ask(fd, command);
    ask(fd, "{\"execute\":\"query-block\"}\n");
    (void)close(fd);
}

/* The value of DEVNAME= in an event, a list of texts. */
static const char *device_of(const char *event, const char *end)
{
    while (event < end && strncmp(event, "DEVNAME=", 8) != 0)
        event += strlen(event) + 1;
    return event < end ? event + 8 : "";
}

int main(int argc, char **argv)
{
    int uevents = listen_to_kernel();
    char event[UEVENT_BYTES];

    (void)printf("ready\n");
    (void)fflush(stdout);
    for (;;) {
        ssize_t length = recv(uevents, event, sizeof(event) - 1, 0);

        if (length <= 0)
            fail("uevents");
        event[length] = '\0';
        for (int i = 1; i + 2 < argc; i += 3)
            if (strcmp(device_of(event, event + length), argv[i] + strlen("/dev/")) == 0)
                resize(argv[i + 2], argv[i + 1], read_size(argv[i]));
    }
}
