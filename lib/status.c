/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - the codes by name, and over HTTP. */
#include "lib/status.h"

#include <stddef.h>

#include "lib/cleanup.h"

const char *status_name(int code)
{
    static const char *const names[] = {
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    };

    return code >= 0 && (size_t)code < array_length(names) ? names[code] : NULL;
}

unsigned status_of_http(enum status_code code)
{
    switch (code) {
    case STATUS_OK:
        return 200;
    case STATUS_CANCELLED:
        return 499;
    case STATUS_INVALID_ARGUMENT:
    case STATUS_FAILED_PRECONDITION:
    case STATUS_OUT_OF_RANGE:
        return 400;
    case STATUS_PERMISSION_DENIED:
        return 403;
    case STATUS_NOT_FOUND:
        return 404;
    case STATUS_ALREADY_EXISTS:
        return 409;
    case STATUS_RESOURCE_EXHAUSTED:
        return 429;
    case STATUS_UNIMPLEMENTED:
        return 501;
    case STATUS_UNAVAILABLE:
        return 503;
    case STATUS_DEADLINE_EXCEEDED:
        return 504;
    case STATUS_INTERNAL:
        break;
    }
    return 500;
}
