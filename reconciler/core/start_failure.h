/* SPDX-License-Identifier: Apache-2.0 */
/* start_failure.h - what a person can do about a start that failed, and whether another start may
 * help. */
#pragma once

/* crustd's exit codes. */
enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_LOCKED = 3, EXIT_REFUSED = 4 };

enum start_step { START_CONFIG, START_DATABASE, START_SERVING, START_OTHER };

/* The remedy for a `result` as the step returned it: an outcome of its functions, or -errno. Never
 * NULL. */
const char *start_failure_remedy(enum start_step step, int result);

/* The exit code. Those that a restart cannot cure are in the unit's RestartPreventExitStatus. */
int start_failure_exit_code(enum start_step step, int result);
