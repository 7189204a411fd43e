/* status.c - the codes by name, and over HTTP. */
#include "lib/status.h"

const char *status_name(enum status_code code)
{
    switch (code) {
    case STATUS_OK:
        return "OK";
    case STATUS_CANCELLED:
        return "CANCELLED";
    case STATUS_INVALID_ARGUMENT:
        return "INVALID_ARGUMENT";
    case STATUS_DEADLINE_EXCEEDED:
        return "DEADLINE_EXCEEDED";
    case STATUS_NOT_FOUND:
        return "NOT_FOUND";
    case STATUS_ALREADY_EXISTS:
        return "ALREADY_EXISTS";
    case STATUS_PERMISSION_DENIED:
        return "PERMISSION_DENIED";
    case STATUS_RESOURCE_EXHAUSTED:
        return "RESOURCE_EXHAUSTED";
    case STATUS_FAILED_PRECONDITION:
        return "FAILED_PRECONDITION";
    case STATUS_OUT_OF_RANGE:
        return "OUT_OF_RANGE";
    case STATUS_UNIMPLEMENTED:
        return "UNIMPLEMENTED";
    case STATUS_UNAVAILABLE:
        return "UNAVAILABLE";
    case STATUS_INTERNAL:
        break;
    }
    return "INTERNAL";
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
