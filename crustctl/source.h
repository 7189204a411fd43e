/* SPDX-License-Identifier: Apache-2.0 */
/* source.h - the source of crustctl's answers: the daemon, or without it the database. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "config/config.h"
#include "lib/buffer.h"
#include "lib/loop.h"
#include "lib/result.h"
#include "store/read.h"

/* Outcomes: the caller prints the error's text and exits accordingly. */
enum {
    SOURCE_UNREACHABLE = 1, /* no daemon (and, for rows, no database either) */
    SOURCE_REFUSED = 2,     /* the daemon answered with an error status */
};

struct source;

/* Reads the configuration; config_file NULL: the default one below root, which may be absent. Where
 * a file has a fault, the others hold, and source_config_fault() says so. Asks nobody yet. 0 or
 * -errno. */
int source_open(const char *root, const char *config_file, struct source **ret_source,
                struct error *error);
void source_close(struct source *source);

/* From now on a daemon that does not answer is SOURCE_UNREACHABLE, even if there is a database. */
void source_want_daemon(struct source *source);

const char *source_config_fault(const struct source *source); /* NULL: there is none */
const struct config *source_config(const struct source *source);
int source_root(const struct source *source);    /* O_PATH of --root, borrowed */
struct loop *source_loop(struct source *source); /* where requests are made, borrowed */

/* Rows of a view, as JSON text. Once no daemon answered, this source keeps to the database, and
 * says so once on stderr. 0, SOURCE_*, -errno. */
int source_read(struct source *source, const struct store_query *query, struct buffer *ret_json,
                struct error *error);
/* The same, parsed: an array, owned by the caller. */
int source_rows(struct source *source, const struct store_query *query, cJSON **ret_rows,
                struct error *error);

/* The daemon's status; without a daemon {"daemon":false,"summary":{…}} from the database. */
int source_status(struct source *source, struct buffer *ret_json, struct error *error);

/* The node's findings (doctor/doctor.h), as JSON text: the daemon's, or else those of this process,
 * with what the database knows of sandboxes where there is one. 0, SOURCE_REFUSED, -errno. */
int source_findings(struct source *source, bool *ret_by_daemon, struct buffer *ret_json,
                    struct error *error);

/* Which files of Kata's configurations need crust-qemu, as findings; no daemon is asked. 0, -errno.
 */
int source_crust_users(struct source *source, struct buffer *ret_json, struct error *error);

/* One request to the daemon and nobody else. 0: 2xx, ret_body is the answer. SOURCE_REFUSED: the
 * error's text is the daemon's message and ret_body its JSON. SOURCE_UNREACHABLE, -errno. */
int source_ask_daemon(struct source *source, const char *method, const char *path,
                      struct buffer *ret_body, struct error *error);

/* ---- call ----------------------------------------------------------------------------------- */

/* One request to the daemon, with progress while it takes long. */

/* Called every half second until the answer is there. */
typedef void call_progress(void *userdata);

struct call_request {
    const char *method;
    const char *target;
    const char *body; /* JSON, or "" for an empty one; NULL none */
    unsigned deadline_seconds;
    call_progress *progress; /* NULL: nothing */
    void *userdata;
};

/* 0 with the answer. SOURCE_REFUSED: ret_status is HTTP's, the error has the daemon's message and
 * ret_body its JSON. SOURCE_UNREACHABLE, -errno. */
int call_daemon(struct source *source, const struct call_request *request, unsigned *ret_status,
                struct buffer *ret_body, struct error *error);
