/* SPDX-License-Identifier: Apache-2.0 */
/* status.h - how a call ended, as a google.rpc.Code: gRPC's status, and the code of errors over
 * HTTP. UNAVAILABLE may heal by itself; FAILED_PRECONDITION needs somebody to change something.
 * docs/csi-drivers.md has every case. */
#pragma once

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
