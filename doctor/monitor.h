/* SPDX-License-Identifier: Apache-2.0 */
/* monitor.h - what kind of monitor a running QEMU has for crustd. Private to doctor/. */
#pragma once

#include <sys/types.h>

/* "crust-qemu's, QMP", "an extra monitor, QMP", …; static. By the socket's path, and by what the
 * process's arguments say of it; without the protocol where they say nothing of it. NULL: it is a
 * human monitor (HMP), which crustd does not use. */
const char *monitor_describe(pid_t pid, const char *socket);
