/* SPDX-License-Identifier: Apache-2.0 */
/* program.h - the helper's program on this node: guest.helper_file. */
#pragma once

#include "config/config.h"
#include "lib/result.h"

/* Outcomes of helper_program_open(); the error says which file and why. */
enum {
    HELPER_PROGRAM_OK,
    HELPER_PROGRAM_MISSING, /* missing, or not fit to be run as root in a guest */
    HELPER_PROGRAM_FOREIGN, /* built for another processor architecture than this node's */
};

enum { HELPER_PROGRAM_BYTES = 64 * 1024 * 1024 };

/* Opens the file for reading, and checks it: a regular file of root's that nobody else may write,
 * an ELF program for the machine that crustd itself runs on. HELPER_PROGRAM_* or -errno. */
int helper_program_open(const struct config *config, int *ret_fd, struct error *error);
