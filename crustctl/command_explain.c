/* SPDX-License-Identifier: Apache-2.0 */
/* command_explain.c - what to do about a volume, what its state means, and what is known.
 *
 * The state and its reason are explained from the table; the facts are this volume's own. An
 * unknown word (a newer daemon) is shown without an explanation.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "crustctl/command.h"
#include "crustctl/display.h"
#include "crustctl/dossier.h"
#include "crustctl/facts.h"
#include "crustctl/row.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "model/advice.h"

enum { WIDEST = 100 }; /* longer lines of prose are hard to read */

/* Everything an answer consists of, for text and JSON alike. */
struct answer {
    const cJSON *volume;
    struct advice advice;
    struct facts facts;
};

static void print_heading(const struct answer *answer, struct buffer *out)
{
    cleanup(buffer_done) struct buffer name = BUFFER_INIT(0);
    cleanup(buffer_done) struct buffer state = BUFFER_INIT(0);

    row_volume_name(answer->volume, &name);
    row_state(answer->volume, &state);
    buffer_fail(out, buffer_error(&name));
    buffer_fail(out, buffer_error(&state));
    buffer_append_format(out, "Volume %" PRIu64 ", ",
                         row_number(answer->volume, "volume_id", NULL));
    display_append(out, buffer_text(&name));
    buffer_append_text(out, ": ");
    display_append(out, buffer_text(&state));
    buffer_append_text(out, "\n");
}

/* Nothing, if there is no item. */
static void print_list(const char *title, const char *const *items, unsigned count, unsigned width,
                       struct buffer *out)
{
    if (count > 0)
        buffer_append_format(out, "\n%s\n", title);
    for (unsigned i = 0; i < count; i++)
        display_append_wrapped(out, items[i], "  - ", 4, width);
}

static void print_meaning(const struct answer *answer, unsigned width, struct buffer *out)
{
    const struct advice *advice = &answer->advice;
    const char *meaning[2];
    unsigned count = 0;

    meaning[count++] =
        advice->state ? advice->state->meaning : "This crustctl does not know this state.";
    if (advice->reason)
        meaning[count++] = advice->reason->meaning;
    else if (advice->state && strcmp(row_reason(answer->volume), "none") != 0)
        meaning[count++] = "This crustctl does not know this reason.";
    print_list("What it means", meaning, count, width, out);
}

/* What to do comes first: the reader may have been woken for it. */
static void print_text(const struct answer *answer, unsigned width, struct buffer *out)
{
    const char *fact[FACTS_MAX];

    if (width > WIDEST)
        width = WIDEST;
    for (unsigned i = 0; i < answer->facts.count; i++)
        fact[i] = answer->facts.fact[i];
    print_heading(answer, out);
    print_list("What to do", answer->advice.remedy, answer->advice.remedies, width, out);
    print_meaning(answer, width, out);
    print_list("What is missing", &answer->advice.missing, answer->advice.missing != NULL, width,
               out);
    print_list("What is known", fact, answer->facts.count, width, out);
}

static void add_text(cJSON *object, const char *name, const char *text)
{
    if (text)
        cJSON_AddStringToObject(object, name, text);
    else
        cJSON_AddNullToObject(object, name);
}

/* An older crustd's row may lack a column. */
static void add_column(cJSON *object, const cJSON *row, const char *name)
{
    const cJSON *value = json_member(row, name);

    if (value)
        cJSON_AddItemToObject(object, name, cJSON_Duplicate(value, true));
    else
        cJSON_AddNullToObject(object, name);
}

static void print_json(const struct answer *answer, struct buffer *out)
{
    static const char *const columns[] = {"volume_id", "target_path", "state",
                                          "reason",    "resizable",   "resizable_reason"};
    cleanup(json_deletep) cJSON *object = cJSON_CreateObject();
    cJSON *known, *remedies;

    for (size_t i = 0; i < array_length(columns); i++)
        add_column(object, answer->volume, columns[i]);
    add_text(object, "state_meaning", answer->advice.state ? answer->advice.state->meaning : NULL);
    add_text(object, "reason_meaning",
             answer->advice.reason ? answer->advice.reason->meaning : NULL);
    add_text(object, "resizable_meaning",
             answer->advice.resizable ? answer->advice.resizable->meaning : NULL);
    known = cJSON_AddArrayToObject(object, "known");
    for (unsigned i = 0; i < answer->facts.count; i++)
        cJSON_AddItemToArray(known, cJSON_CreateString(answer->facts.fact[i]));
    add_text(object, "missing", answer->advice.missing);
    remedies = cJSON_AddArrayToObject(object, "remedies");
    for (unsigned i = 0; i < answer->advice.remedies; i++)
        cJSON_AddItemToArray(remedies, cJSON_CreateString(answer->advice.remedy[i]));
    if (remedies)
        row_print_json(object, out);
    else
        buffer_fail(out, -ENOMEM);
}

int command_explain(struct session *session)
{
    cleanup(dossier_done) struct dossier dossier = {0};
    struct answer answer = {0};
    int code = dossier_collect(session, &dossier);

    if (code != 0)
        return code;
    answer.volume = dossier.volume;
    dossier_ask_judged(session, &dossier);
    advice_collect(dossier.volume, dossier.layers, &answer.advice);
    facts_collect(&dossier, source_config(session->source), &answer.facts);
    if (session->options->json)
        print_json(&answer, &session->out);
    else
        print_text(&answer, session->width, &session->out);
    return EXIT_DONE;
}
