/* SPDX-License-Identifier: Apache-2.0 */
/* bounds.h - bounds on the texts that the store keeps. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct store;

/* The outcomes of a search for one object. */
enum store_found { STORE_FOUND, STORE_NOT_FOUND };

enum {
    STORE_SCHEMA_VERSION = 1,  /* the major version; minor ones: schema.h */
    STORE_PATH_BYTES = 4096,   /* a device as written in mountInfo.json */
    STORE_TARGET_BYTES = 4096, /* a volume path; in Kata's layout it has at most 189 bytes */
    STORE_KEY_BYTES = 256,     /* a directory's name */
    STORE_SANDBOX_ID_BYTES = 129,
    STORE_NAME_BYTES = 128,    /* kernel device names, drive ids */
    STORE_ADDRESS_BYTES = 384, /* sockets, agent addresses, guest paths */
    STORE_TEXT_BYTES = 256,    /* problems and errors */
};
