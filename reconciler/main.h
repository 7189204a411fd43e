/* SPDX-License-Identifier: Apache-2.0 */
/* main.h - crustd's command line. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"
#include "lib/log.h"
#include "lib/loop.h"
#include "lib/result.h"

struct arguments {
    const char *config; /* NULL: the default, below root */
    const char *root;   /* --root, or else CRUST_ROOT in the environment */
    const char *node;   /* NODE_NAME in the environment, or else the host's name */
    bool check_config;
    bool once;
    enum log_level log_level;
    enum log_format log_format;
};

/* Strings are borrowed from argv. -1: go on; otherwise all is said and this is the exit status. */
int arguments_parse(int argc, char **argv, struct arguments *ret_arguments);

/* ---- restart -------------------------------------------------------------------------------- */

/* Crustd executes itself anew: the same process, program, arguments and environment.
 *
 * One variable of the environment is added, which says when that was and whether the database's
 * file is to be left alone for now.
 */

struct restart {
    char **arguments;   /* borrowed */
    char **environment; /* as at the start; the first element is reserved for our variable */
    uint64_t at_ns;     /* CLOCK_BOOTTIME; 0: this process was not crustd before */
    bool in_memory;     /* the file is not to be opened at this start */
};

/* To be called before the environment is changed. 0 or -ENOMEM. */
int restart_init(struct restart *restart, char **arguments);

/* crustd executed itself less than a minute ago. A file that fails so soon would fail again, so the
 * next start works in memory: there is no endless loop of restarts. */
bool restart_is_recent(const struct restart *restart);

/* SIGTERM, SIGINT and SIGHUP wait for the next start, or are delivered again. */
void restart_hold_signals(bool hold);

/* Executes crustd anew, once its children are gone. Returns only if that fails: -errno. */
int restart_execute(struct restart *restart, bool in_memory);
