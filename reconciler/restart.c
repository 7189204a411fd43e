/* SPDX-License-Identifier: Apache-2.0 */
/* restart.c - see main.h.
 *
 * /proc/self/exe is executed because an upgrade may have replaced the program's file. All
 * descriptors but the standard ones are closed by the execution; with them go the database's locks
 * and the lock of the instance. Children are waited for, because the next start does not know them
 * and would never reap them.
 */
#include "reconciler/main.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/clock.h"

#define VARIABLE  "CRUSTD_RESTARTED"
#define IN_MEMORY " memory"

enum { REAPING_PAUSES = 100, PAUSE_NS = 10 * NSEC_PER_MSEC };
static const uint64_t RECENT_NS = 60 * NSEC_PER_SEC;

int restart_init(struct restart *restart, char **arguments)
{
    const char *value = getenv(VARIABLE);
    size_t count = 0, kept = 1;
    uint64_t at_ns;
    char *rest;

    while (environ[count])
        count++;
    *restart =
        (struct restart){.arguments = arguments, .environment = calloc(count + 2, sizeof(char *))};
    if (!restart->environment)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], VARIABLE "=", sizeof(VARIABLE)) != 0)
            restart->environment[kept++] = environ[i];
    if (value && *value >= '0' && *value <= '9') {
        at_ns = strtoull(value, &rest, 10);
        if (at_ns <= clock_boottime() && (!*rest || strcmp(rest, IN_MEMORY) == 0)) {
            restart->at_ns = at_ns;
            restart->in_memory = *rest != '\0';
            (void)prctl(PR_SET_NAME, "crustd"); /* it is "exe" otherwise */
        }
    }
    (void)unsetenv(VARIABLE);
    return 0;
}

bool restart_is_recent(const struct restart *restart)
{
    return restart->at_ns && clock_boottime() - restart->at_ns < RECENT_NS;
}

void restart_hold_signals(bool hold)
{
    sigset_t signals;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGHUP);
    (void)sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &signals, NULL);
}

int restart_execute(struct restart *restart, bool in_memory)
{
    const struct timespec pause_time = {.tv_nsec = PAUSE_NS};
    char variable[64];
    pid_t pid = 0;

    /* A child that the kernel does not let die is not waited for without end. */
    for (unsigned pauses = 0; pid >= 0 && pauses < REAPING_PAUSES;) {
        pid = waitpid(-1, NULL, WNOHANG);
        if (pid == 0) {
            (void)nanosleep(&pause_time, NULL);
            pauses++;
        }
    }
    (void)snprintf(variable, sizeof(variable), VARIABLE "=%" PRIu64 "%s", clock_boottime(),
                   in_memory ? IN_MEMORY : "");
    restart->environment[0] = variable;
    (void)close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    (void)execve("/proc/self/exe", restart->arguments, restart->environment);
    return -errno;
}
