/* SPDX-License-Identifier: Apache-2.0 */
/* source.h - the source of crustctl's answers: the daemon, or without it the database. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "config/config.h"
#include "lib/buffer.h"
#include "lib/result.h"
#include "store/read.h"

/* Outcomes: the caller prints the error's text and exits accordingly. */
enum {
    SOURCE_UNREACHABLE = 1, /* no daemon (and, for rows, no database either) */
    SOURCE_REFUSED = 2,     /* the daemon answered with an error status */
};

enum { SOURCE_ANSWER_BYTES = 64 * 1024 * 1024 };

struct source {
    int root;              /* O_PATH of --root */
    const char *root_name; /* borrowed: an argument */
    struct config config;
    struct error config_fault; /* "" where the configuration was read */
    bool needs_daemon;   /* an absent daemon is SOURCE_UNREACHABLE, whatever the database has */
    bool checked_memory; /* whether the daemon works in memory */
    struct store_reader *reader; /* set once no daemon answered */
};

/* Reads the configuration; config_file NULL: the default one below root, which may be absent. Where
 * a file has a fault, the others hold. Asks nobody yet. 0 or -errno; source_close() either way. */
int source_open(struct source *source, const char *root, const char *config_file,
                struct error *error);
void source_close(struct source *source);

struct source_request {
    const char *method, *target;
    const char *body; /* JSON, or "" for an empty one; NULL none */
    unsigned seconds; /* until it is given up; 0: 30 */

    /* While the answer is not there, what this says of the subject is shown on stderr whenever it
     * has changed. NULL: nothing is. */
    void (*describe)(struct source *source, const char *subject, struct buffer *ret_text);
    const char *subject;

    unsigned status; /* HTTP's, of the answer */
};

/* One request to the daemon and nobody else. 0: 2xx, ret_body is the answer. SOURCE_REFUSED: the
 * error's text is the daemon's message and ret_body its JSON. SOURCE_UNREACHABLE, -errno. */
int source_ask(struct source *source, struct source_request *request, struct buffer *ret_body,
               struct error *error);

/* Rows of a view, as JSON text. Once no daemon answered, this source keeps to the database, and
 * says so once on stderr. 0, SOURCE_*, -errno. */
int source_read(struct source *source, const struct store_query *query, struct buffer *ret_json,
                struct error *error);
/* The same, parsed: an array, owned by the caller. */
int source_rows(struct source *source, const struct store_query *query, cJSON **ret_rows,
                struct error *error);

/* JSON of crustd's own, whose size alone is bounded. 0 or -errno. */
int source_parse(const struct buffer *json, cJSON **ret_value, struct error *error);

/* The daemon's status; without a daemon {"daemon":false,"summary":{…}} from the database. */
int source_status(struct source *source, cJSON **ret_status, struct error *error);

/* The node's findings (doctor/doctor.h): the daemon's, or else those of this process, with what the
 * database knows of sandboxes where there is one. 0, SOURCE_REFUSED, -errno. */
int source_findings(struct source *source, bool *ret_by_daemon, cJSON **ret_findings,
                    struct error *error);
