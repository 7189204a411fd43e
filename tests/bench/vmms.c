/* vmms.c - processes that stand in for VMMs: vmms IDS, one sandbox id per line of standard input.
 *
 * crustd knows a VMM by its arguments. One program is started, with room for an id among its
 * arguments; each copy that it forks writes its own id there, which /proc/PID/cmdline then shows.
 * So a thousand VMMs cost a thousand forks and hardly any memory. Prints each copy's pid; all end
 * with standard input.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { ID_CHARS = 64 };

static pid_t start_copy(char *argument, const char *id)
{
    pid_t parent = getpid(), pid = fork();

    if (pid != 0)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)close(STDIN_FILENO);
    memcpy(argument, id, ID_CHARS);
    while (getppid() == parent)
        (void)pause();
    _exit(0);
}

int main(int argc, char **argv)
{
    char id[ID_CHARS + 2];

    if (argc != 2 || strlen(argv[1]) != ID_CHARS)
        return 2;
    while (fgets(id, sizeof(id), stdin)) {
        pid_t pid;

        if (strcspn(id, "\n") != ID_CHARS)
            return 2;
        pid = start_copy(argv[1], id);
        if (pid < 0)
            return 1;
        (void)printf("%d\n", (int)pid);
        (void)fflush(stdout);
    }
    return 0;
}
