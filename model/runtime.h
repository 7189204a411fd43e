/* SPDX-License-Identifier: Apache-2.0 */
/* runtime.h - which of Kata's runtimes a sandbox has, as in audit_sandboxes. */
#pragma once

enum kata_runtime { RUNTIME_UNKNOWN, RUNTIME_KATA_GO, RUNTIME_KATA_RS, RUNTIMES };

const char *runtime_name(enum kata_runtime runtime);

/* RUNTIME_UNKNOWN for a name that is not in the table. */
enum kata_runtime runtime_from_name(const char *name);
