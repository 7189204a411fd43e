/* SPDX-License-Identifier: Apache-2.0 */
/* source.c - the watchers' names in metrics and logs. */
#include "watch/watch.h"

const char *watch_source_name(enum watch_source source)
{
    switch (source) {
    case WATCH_INOTIFY:
        return "inotify";
    case WATCH_UEVENT:
        return "uevent";
    case WATCH_MOUNTS:
        return "mounts";
    case WATCH_PROCESS:
        return "process";
    case WATCH_SOURCES:
        break;
    }
    return "unknown";
}
