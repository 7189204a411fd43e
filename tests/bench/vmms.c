/* SPDX-License-Identifier: Apache-2.0 */
/* vmms.c - processes that stand in for VMMs: vmms -name sandbox-ID, or for shims: vmms -id ID. One
 * sandbox id per line of standard input.
 *
 * crustd knows both by their arguments. One program is started, with room for an id among its
 * arguments; each copy that it forks writes its own id there, which /proc/PID/cmdline then shows.
 * So a thousand VMMs cost a thousand forks and hardly any memory. Prints each copy's pid; all end
 * with standard input, if nobody has ended them before.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ID_CHARS = 64 };

/* Ends for its reader when the one program does. */
static int lifeline[2];

/* Its parent is the first process, as a VMM's is whose shim has let go of it: of another parent's
 * child crustd does not believe what its arguments say. */
static void be_copy(char *place, const char *id, pid_t middle, int report)
{
    const pid_t pid = getpid();
    char byte;

    (void)close(STDIN_FILENO);
    (void)close(lifeline[1]);
    memcpy(place, id, ID_CHARS);
    while (getppid() == middle)
        (void)usleep(100);
    (void)!write(report, &pid, sizeof(pid));
    (void)close(report);
    (void)!read(lifeline[0], &byte, 1);
    _exit(0);
}

/* Returns when the copy has its id; its pid, -1: there is none. */
static pid_t start_copy(char *place, const char *id)
{
    int ends[2];
    pid_t pid;

    if (pipe(ends) < 0)
        return -1;
    pid = fork();
    if (pid == 0) {
        const pid_t middle = getpid();

        if (fork() == 0)
            be_copy(place, id, middle, ends[1]);
        _exit(0);
    }
    (void)close(ends[1]);
    if (pid > 0 && read(ends[0], &pid, sizeof(pid)) != sizeof(pid))
        pid = -1;
    (void)close(ends[0]);
    return pid;
}

int main(int argc, char **argv)
{
    char id[ID_CHARS + 2], *place;

    if (argc != 3 || strlen(argv[2]) < ID_CHARS)
        return 2;
    place = argv[2] + strlen(argv[2]) - ID_CHARS;
    (void)signal(SIGCHLD, SIG_IGN); /* none is waited for */
    if (pipe(lifeline) < 0)
        return 1;
    while (fgets(id, sizeof(id), stdin)) {
        pid_t pid;

        if (strcspn(id, "\n") != ID_CHARS)
            return 2;
        pid = start_copy(place, id);
        if (pid < 0)
            return 1;
        (void)printf("%d\n", (int)pid);
        (void)fflush(stdout);
    }
    return 0;
}
