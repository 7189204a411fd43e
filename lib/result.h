/* SPDX-License-Identifier: Apache-2.0 */
/* result.h - what a function's int result means, and how an error's text reaches a person.
 *
 * Every function that can fail returns int:
 *
 *     0   done
 *    <0 -errno: a failure. The caller forwards it. A caller that distinguishes failures compares it
 *         with the names in the module's header (enum store_failure), never with an errno;
 *         tests/check-outcomes.sh sees to that.
 *    >0   an outcome that the function's header enumerates. The caller must handle it and never
 *         forwards the number: the same number means something else one level up.
 *
 * Out-parameters are called ret_… and stay untouched unless the result is 0 (or the header says
 * which outcome fills them too).
 *
 * Where a person will read why (configuration, remote errors, API replies), the function takes a
 * struct error that the caller owns. Filling it neither allocates nor fails; long text is cut in
 * its middle.
 */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

enum { ERROR_TEXT_BYTES = 256 };

struct error {
    int code; /* what the function returned with it: negative errno or its outcome */
    char text[ERROR_TEXT_BYTES];
};

/* The outcomes of a function that works in slices. */
enum progress_outcome {
    PROGRESS_DONE, /* that was all */
    PROGRESS_MORE, /* there is more, or may be: call it again */
};

/* Whether descriptors or memory ran out: then nothing was learned about the object in question. */
bool result_is_shortage(int result);

/* All accept error == NULL and return code, so that a failing function can end with `return
 * error_set(error, -EINVAL, "…")`. */
int error_set(struct error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Appends ": strerror(-code)" to the text. */
int error_set_errno(struct error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts context before an existing text: "FILE:LINE: " + text. Returns its code; 0 for NULL, so a
 * function with an optional error keeps its own result. */
int error_prefix(struct error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- status --------------------------------------------------------------------------------- */

/* How a call ended, as a google.rpc.Code: gRPC's status, and the code of errors over
 * HTTP. UNAVAILABLE may heal by itself; FAILED_PRECONDITION needs somebody to change something.
 * docs/csi-drivers.md has every case. */

/* The codes that crustd sends or checks for. */
enum status_code {
    STATUS_OK = 0,
    STATUS_CANCELLED = 1, /* only counted: the client is gone */
    STATUS_INVALID_ARGUMENT = 3,
    STATUS_DEADLINE_EXCEEDED = 4,
    STATUS_NOT_FOUND = 5,
    STATUS_ALREADY_EXISTS = 6,
    STATUS_PERMISSION_DENIED = 7,
    STATUS_RESOURCE_EXHAUSTED = 8,
    STATUS_FAILED_PRECONDITION = 9,
    STATUS_OUT_OF_RANGE = 11,
    STATUS_UNIMPLEMENTED = 12,
    STATUS_INTERNAL = 13,
    STATUS_UNAVAILABLE = 14,
};

/* "OK", "INVALID_ARGUMENT", …; NULL for a number that is no google.rpc.Code. */
const char *status_name(int code);

/* HTTP's status for it, as google.rpc.Code maps them. */
unsigned status_of_http(enum status_code code);
