/* SPDX-License-Identifier: Apache-2.0 */
/* starts.c - how much longer a program takes to start through another one:
 * starts ROUNDS DIRECTLY THROUGH ARGUMENT...
 *
 * Runs both with the same arguments, in turn, and prints for each round the nanoseconds from before
 * the fork to the end of each. What they are beyond starting is the same program's, so it falls out
 * of the difference.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

static uint64_t run(char **arguments, char *program)
{
    uint64_t begin = now_ns();
    int status;
    pid_t pid;

    arguments[0] = program;
    pid = vfork();
    if (pid == 0) {
        (void)execv(program, arguments);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
        WEXITSTATUS(status) != 0)
        fail(program);
    return now_ns() - begin;
}

int main(int argc, char **argv)
{
    char *directly, *through, **arguments = argv + 3; /* the first one is the program's path */
    long rounds = argc > 3 ? strtol(argv[1], NULL, 10) : 0;

    if (rounds <= 0)
        fail("usage: starts ROUNDS DIRECTLY THROUGH ARGUMENT...");
    directly = argv[2];
    through = argv[3];
    for (; rounds > 0; rounds--) {
        uint64_t first = run(arguments, directly);

        (void)printf("%" PRIu64 " %" PRIu64 "\n", first, run(arguments, through));
    }
    return 0;
}
