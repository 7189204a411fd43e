/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - says what a container is made of, one line each: NAME VALUE. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The lines of /proc/self/status that begin so. */
static void show_status(void)
{
    static const char *const names[] = {"CapInh", "CapPrm", "CapEff",
                                        "CapBnd", "CapAmb", "NoNewPrivs"};
    FILE *file = fopen("/proc/self/status", "re");
    char line[256], name[64], value[64];

    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "%63[^:]: %63s", name, value) != 2)
            continue;
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
            if (strcmp(names[i], name) == 0)
                printf("%s %s\n", name, value);
        }
    }
    if (file)
        fclose(file);
}

static void show_namespaces(void)
{
    static const char *const names[] = {"mnt", "ipc", "uts", "pid", "net"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[64], target[64] = "";

        snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
        if (readlink(path, target, sizeof(target) - 1) > 0)
            printf("ns-%s %s\n", names[i], target);
    }
}

/* "DESTINATION TYPE OPTIONS" of each mount. */
static void show_mounts(void)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    char line[1024], destination[256], options[256], type[64];

    while (file && fgets(line, sizeof(line), file)) {
        const char *dash = strstr(line, " - ");

        if (dash && sscanf(line, "%*s %*s %*s %*s %255s %255s", destination, options) == 2 &&
            sscanf(dash, " - %63s", type) == 1)
            printf("mount %s %s %s\n", destination, type, options);
    }
    if (file)
        fclose(file);
}

static unsigned count(const char *path)
{
    DIR *directory = opendir(path);
    unsigned entries = 0;

    while (directory && readdir(directory))
        entries++;
    if (directory)
        closedir(directory);
    return entries;
}

static const char *try_to_write(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0)
        return strerror(errno);
    close(fd);
    return "written";
}

int main(int argc, char **argv)
{
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};

    show_status();
    show_namespaces();
    show_mounts();
    printf("pid %d\nuid %u\nwhere %s\n", (int)getpid(), getuid(), getcwd((char[256]){0}, 256));
    printf("devices %u\n", count("/dev") - 2);
    printf("root %s\n", try_to_write("/file"));
    printf("sysfs %s\n", try_to_write("/sys/kernel/uevent_helper"));
    printf("input %s\n", poll(&input, 1, 0) > 0 ? "readable" : "open");
    for (int i = 1; i < argc; i++)
        printf("argument %s\n", argv[i]);
    fprintf(stderr, "said on standard error\n");
    return 7;
}
