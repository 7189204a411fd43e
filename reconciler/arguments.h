/* SPDX-License-Identifier: Apache-2.0 */
/* arguments.h - crustd's command line. */
#pragma once

#include <stdbool.h>

#include "lib/log.h"

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
