/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - checks a text against RFC 8259, more strictly where readers differ, before cJSON reads
 * it.
 *
 * The gate walks all of the text, one value after another, and builds nothing. Where the caller
 * names the members that it reads, the gate copies those, and cJSON sees the copy only: a text of
 * 8 MiB costs one walk over its bytes, and a tree of the little that is read.
 *
 * Letter case is ASCII's, and the two characters beyond that Go's encoding/json folds onto ASCII
 * letters: U+017F (long s) and U+212A (kelvin sign). Every name that crustd reads is ASCII, so no
 * other folding can make two keys name one field.
 *
 * Recursion is bounded by limits.depth, which is at most JSON_MAX_DEPTH.
 */
#include "lib/json.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/text.h"

enum {
    JSON_MAX_DEPTH = 64,
    JSON_NUMBER_CHARS = 63, /* cJSON reads no more of a number */
    JSON_KEY_BYTES = 64,    /* no name that is looked for is as long */
};

#define LONG_S      UINT32_C(0x017F)
#define KELVIN_SIGN UINT32_C(0x212A)

/* A key, unescaped. One that is too long has no more than its beginning, and is no name. */
struct key {
    char text[JSON_KEY_BYTES + 1];
    size_t length;
};

struct gate {
    const char *text;
    size_t length;
    size_t at;
    unsigned depth;
    unsigned depth_limit;
    unsigned values, value_limit;
    unsigned skipping;  /* members that nobody reads, around the place where the gate is */
    const char *member; /* the last one that was found among the names; "" none */
    struct error *error;
    struct buffer kept; /* the text without them */
};

static int gate_value(struct gate *gate, const char *names);

static int refuse(struct gate *gate, size_t position, const char *what)
{
    return error_set(gate->error, JSON_WRONG, "%s at byte %zu", what, position);
}

static bool gate_peek(const struct gate *gate, char character)
{
    return gate->at < gate->length && gate->text[gate->at] == character;
}

static bool gate_accept(struct gate *gate, char character)
{
    if (!gate_peek(gate, character))
        return false;
    gate->at++;
    return true;
}

static void gate_space(struct gate *gate)
{
    if (gate->at < gate->length && gate->text[gate->at] > ' ')
        return;
    while (gate_peek(gate, ' ') || gate_peek(gate, '\t') || gate_peek(gate, '\n') ||
           gate_peek(gate, '\r'))
        gate->at++;
}

static uint32_t fold_character(uint32_t character)
{
    if (character >= 'A' && character <= 'Z')
        return character - 'A' + 'a';
    if (character == LONG_S)
        return 's';
    if (character == KELVIN_SIGN)
        return 'k';
    return character;
}

/* Reads one character of well-formed UTF-8, folded; 0 at the end. */
static uint32_t next_folded(const char **cursor)
{
    uint32_t character = (unsigned char)**cursor;

    if (character < 0x80)
        *cursor += character != 0;
    else
        *cursor += text_decode_utf8(*cursor, strnlen(*cursor, 4), &character);
    return fold_character(character);
}

static bool names_equal(const char *a, const char *b)
{
    uint32_t character;

    do {
        character = next_folded(&a);
        if (character != next_folded(&b))
            return false;
    } while (character);
    return true;
}

/* Four hexadecimal digits after "\u". */
static int gate_hex(struct gate *gate, uint32_t *ret_unit)
{
    uint32_t unit = 0;

    for (int i = 0; i < 4; i++, gate->at++) {
        static const char digits[] = "0123456789abcdef0123456789ABCDEF";
        const char *digit = NULL;

        if (gate->at < gate->length && gate->text[gate->at])
            digit = strchr(digits, gate->text[gate->at]);
        if (!digit)
            return refuse(gate, gate->at, "bad \\u escape");
        unit = unit << 4 | ((uint32_t)(digit - digits) & 0xF);
    }
    *ret_unit = unit;
    return 0;
}

/* After "\u": one unit, or two that are a surrogate pair. */
static int gate_unicode_escape(struct gate *gate, size_t position, uint32_t *ret_character)
{
    uint32_t high, low;
    int r = gate_hex(gate, &high);

    if (r < 0)
        return r;
    if (high == 0)
        return refuse(gate, position, "\\u0000");
    if (high < 0xD800 || high > 0xDFFF) {
        *ret_character = high;
        return 0;
    }
    if (high > 0xDBFF || !gate_accept(gate, '\\') || !gate_accept(gate, 'u'))
        return refuse(gate, position, "lone surrogate");
    r = gate_hex(gate, &low);
    if (r < 0)
        return r;
    if (low < 0xDC00 || low > 0xDFFF)
        return refuse(gate, position, "lone surrogate");
    *ret_character = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    return 0;
}

/* After the backslash. */
static int gate_escape(struct gate *gate, uint32_t *ret_character)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    size_t position = gate->at - 1;
    const char *letter = NULL;

    if (gate_accept(gate, 'u'))
        return gate_unicode_escape(gate, position, ret_character);
    if (gate->at < gate->length && gate->text[gate->at])
        letter = strchr(letters, gate->text[gate->at]);
    if (!letter)
        return refuse(gate, position, "unknown escape");
    gate->at++;
    *ret_character = (unsigned char)meanings[letter - letters];
    return 0;
}

/* One character of a string, unescaped. Precondition: not at the end. */
static int gate_character(struct gate *gate, uint32_t *ret_character)
{
    size_t step;

    if ((unsigned char)gate->text[gate->at] < 0x20)
        return refuse(gate, gate->at, "control character in a string");
    if (gate_accept(gate, '\\'))
        return gate_escape(gate, ret_character);
    step = text_decode_utf8(gate->text + gate->at, gate->length - gate->at, ret_character);
    if (!step)
        return refuse(gate, gate->at, "invalid UTF-8");
    gate->at += step;
    return 0;
}

/* Bytes that stand for themselves wherever they are in a string: printable, and none that begins
 * something. Nearly all bytes of a document are looked up here. */
static const bool plain[256] = {
    [' '] = true, ['!'] = true, ['#' ... '\\' - 1] = true, ['\\' + 1 ... 0x7F] = true};

static void append_key(struct key *key, const char *bytes, size_t length)
{
    size_t room = JSON_KEY_BYTES - key->length;

    memcpy(key->text + key->length, bytes, length < room ? length : room);
    key->length += length < room ? length : room;
}

/* A string; `key` is NULL for one whose characters are of no interest. */
static int gate_string(struct gate *gate, struct key *key)
{
    size_t start = gate->at;

    if (!gate_accept(gate, '"'))
        return refuse(gate, gate->at, "expected a string");
    for (;;) {
        size_t first = gate->at, at = first;
        uint32_t character;
        char bytes[4];
        int r;

        while (at < gate->length && plain[(unsigned char)gate->text[at]])
            at++;
        gate->at = at;
        if (key)
            append_key(key, gate->text + first, at - first);
        if (at == gate->length)
            return refuse(gate, start, "string without an end");
        if (gate_accept(gate, '"'))
            return 0;
        r = gate_character(gate, &character);
        if (r < 0)
            return r;
        if (key)
            append_key(key, bytes, text_encode_utf8(character, bytes));
    }
}

/* A comma, unless the object or the array has just begun. */
static void separate(struct gate *gate)
{
    char last = gate->kept.length ? gate->kept.data[gate->kept.length - 1] : '[';

    if (last != '{' && last != '[')
        buffer_append(&gate->kept, ",", 1);
}

/* Past a name and what is inside. */
static const char *next_name(const char *name)
{
    unsigned open = 0;

    for (; *name && (open || (*name != ' ' && *name != '}')); name++)
        open += (*name == '{') - (*name == '}');
    return name + strspn(name, " ");
}

static bool is_name(const char *name, size_t length, bool is_exact, const struct key *key)
{
    const char *at = key->text;

    if (is_exact)
        return key->length == length && memcmp(at, name, length) == 0;
    for (size_t i = 0; i < length; i++)
        if (next_folded(&at) != fold_character((unsigned char)name[i]))
            return false;
    return !*at;
}

/* The one among an object's names that a key stands for; NULL: nobody reads it. */
static const char *find_name(const char *names, struct key *key, unsigned *ret_index)
{
    key->text[key->length] = '\0';
    for (*ret_index = 0; *names && *names != '}'; names = next_name(names), (*ret_index)++) {
        bool is_exact = *names == '=';

        if (is_name(names + is_exact, strcspn(names, " {}") - is_exact, is_exact, key))
            return names + is_exact;
    }
    return NULL;
}

/* A value with names inside is kept piece by piece, and one without as it is. */
static int gate_named(struct gate *gate, const char *name)
{
    size_t start = gate->at, length = strcspn(name, " {}");
    int r;

    gate->member = name;
    separate(gate);
    buffer_append(&gate->kept, "\"", 1);
    buffer_append(&gate->kept, name, length);
    buffer_append(&gate->kept, "\":", 2);
    if (name[length] == '{')
        return gate_value(gate, name + length + 1);
    r = gate_value(gate, NULL);
    buffer_append(&gate->kept, gate->text + start, gate->at - start);
    return r;
}

/* A member of an object; `seen` has a bit for each of the names that came before it. */
static int gate_member(struct gate *gate, const char *names, uint64_t *seen)
{
    struct key key = {.length = 0};
    const char *name = NULL;
    size_t start = gate->at;
    unsigned index = 0;
    int r = gate_string(gate, names ? &key : NULL);

    if (r < 0)
        return r;
    if (names)
        name = find_name(names, &key, &index);
    if (name && *seen & UINT64_C(1) << index)
        return refuse(gate, start, "key a second time");
    if (name)
        *seen |= UINT64_C(1) << index;
    gate_space(gate);
    if (!gate_accept(gate, ':'))
        return refuse(gate, gate->at, "expected ':'");
    gate_space(gate);
    if (name)
        return gate_named(gate, name);
    gate->skipping += names != NULL;
    r = gate_value(gate, NULL);
    gate->skipping -= names != NULL;
    return r;
}

/* Between the brackets. */
static int gate_items(struct gate *gate, const char *names, char close)
{
    uint64_t seen = 0;

    gate_space(gate);
    if (gate_accept(gate, close))
        return 0;
    for (;;) {
        int r;

        if (names && close == ']')
            separate(gate);
        r = close == '}' ? gate_member(gate, names, &seen) : gate_value(gate, names);
        if (r < 0)
            return r;
        gate_space(gate);
        if (gate_accept(gate, close))
            return 0;
        if (!gate_accept(gate, ','))
            return refuse(gate, gate->at, "expected ',' or the closing bracket");
        gate_space(gate);
    }
}

static int gate_nested(struct gate *gate, const char *names)
{
    bool is_object = gate->text[gate->at] == '{';
    int r;

    if (gate->depth == gate->depth_limit)
        return refuse(gate, gate->at, "nested too deeply");
    gate->depth++;
    gate->at++;
    if (names)
        buffer_append(&gate->kept, is_object ? "{" : "[", 1);
    r = gate_items(gate, names, is_object ? '}' : ']');
    if (names)
        buffer_append(&gate->kept, is_object ? "}" : "]", 1);
    gate->depth--;
    return r;
}

static size_t gate_digits(struct gate *gate)
{
    size_t start = gate->at;

    while (gate->at < gate->length && gate->text[gate->at] >= '0' && gate->text[gate->at] <= '9')
        gate->at++;
    return gate->at - start;
}

static int gate_number(struct gate *gate)
{
    size_t start = gate->at;

    (void)gate_accept(gate, '-');
    if (!gate_accept(gate, '0') && !gate_digits(gate))
        return refuse(gate, start, "expected a value");
    if (gate_accept(gate, '.') && !gate_digits(gate))
        return refuse(gate, start, "bad number");
    if (gate_accept(gate, 'e') || gate_accept(gate, 'E')) {
        if (!gate_accept(gate, '+'))
            (void)gate_accept(gate, '-');
        if (!gate_digits(gate))
            return refuse(gate, start, "bad number");
    }
    if (gate->at - start > JSON_NUMBER_CHARS)
        return refuse(gate, start, "number of too many digits");
    return 0;
}

static bool gate_literal(struct gate *gate, const char *literal)
{
    size_t length = strlen(literal);

    if (gate->length - gate->at < length || memcmp(gate->text + gate->at, literal, length) != 0)
        return false;
    gate->at += length;
    return true;
}

/* `names` NULL: the caller keeps all of the value, or nothing. */
static int gate_value(struct gate *gate, const char *names)
{
    size_t start = gate->at;
    int r;

    if (!gate->skipping && gate->values++ == gate->value_limit)
        return error_set(gate->error, JSON_WRONG, "%.*s%smore values than are read at byte %zu",
                         (int)strcspn(gate->member, " {}"), gate->member, *gate->member ? ": " : "",
                         start);
    if (gate_peek(gate, '{') || gate_peek(gate, '['))
        return gate_nested(gate, names);
    if (gate_peek(gate, '"'))
        r = gate_string(gate, NULL);
    else if (gate_literal(gate, "true") || gate_literal(gate, "false") ||
             gate_literal(gate, "null"))
        r = 0;
    else
        r = gate_number(gate);
    if (names)
        buffer_append(&gate->kept, gate->text + start, gate->at - start);
    return r;
}

/* Whether the gate failed because the text ends there. */
static bool is_cut(const struct gate *gate)
{
    static const char *const literals[] = {"true", "false", "null"};
    const char *rest = gate->text + gate->at;
    size_t left = gate->length - gate->at;

    for (size_t i = 0; i < array_length(literals); i++)
        if (left < strlen(literals[i]) && memcmp(rest, literals[i], left) == 0)
            return true;
    /* In a character. */
    return left < 4 && (unsigned char)rest[0] >= 0xC2 && !memchr(rest, '"', left);
}

/* An enum file_text or an enum json_failure; `names` NULL: all members are kept. */
static int parse(const char *text, size_t length, struct json_limits limits, const char *names,
                 cJSON **ret_value, struct error *error)
{
    struct gate gate = {
        .text = text,
        .length = length,
        .depth_limit = limits.depth < JSON_MAX_DEPTH ? limits.depth : JSON_MAX_DEPTH,
        .value_limit = limits.values ? limits.values : UINT_MAX,
        .member = "",
        .error = error,
        .kept = BUFFER_INIT(length + 1), /* a name is no longer than its key */
    };
    cJSON *value = NULL;
    int r;

    if (length > limits.bytes)
        return error_set(error, JSON_TOO_LONG, "%zu bytes of JSON, more than %zu", length,
                         limits.bytes);
    gate_space(&gate);
    r = gate_value(&gate, names);
    if (r == 0) {
        gate_space(&gate);
        if (gate.at < length)
            r = refuse(&gate, gate.at, "text after the value");
    }
    if (r == 0 && names && buffer_error(&gate.kept) == 0)
        value = cJSON_ParseWithLength(gate.kept.data, gate.kept.length);
    else if (r == 0 && !names)
        value = cJSON_ParseWithLength(text, length);
    buffer_done(&gate.kept);
    if (r < 0)
        return is_cut(&gate) ? FILE_CUT : FILE_WRONG;
    if (!value)
        return error_set(error, JSON_NO_MEMORY, "out of memory");
    *ret_value = value;
    return FILE_READ;
}

int json_parse(const char *text, size_t length, struct json_limits limits, cJSON **ret_value,
               struct error *error)
{
    int r = parse(text, length, limits, NULL, ret_value, error);

    return r > 0 ? JSON_WRONG : r;
}

int json_read(const char *text, size_t length, struct json_limits limits, const char *names,
              cJSON **ret_value, struct error *error)
{
    int r;

    if (!length)
        return error_set(error, FILE_CUT, "empty");
    r = parse(text, length, limits, names, ret_value, error);
    return r == JSON_TOO_LONG ? FILE_WRONG : r;
}

/* Absent, or there twice. */
static const cJSON *find_member(const cJSON *object, const char *name, bool *ret_is_twice)
{
    const cJSON *member, *found = NULL;

    *ret_is_twice = false;
    if (!cJSON_IsObject(object))
        return NULL;
    cJSON_ArrayForEach(member, object)
    {
        if (!names_equal(member->string, name))
            continue;
        *ret_is_twice = found;
        if (found)
            return NULL;
        found = member;
    }
    return found;
}

const cJSON *json_member(const cJSON *object, const char *name)
{
    bool is_twice;

    return find_member(object, name, &is_twice);
}

const char *json_string(const cJSON *object, const char *name)
{
    const cJSON *member = json_member(object, name);

    return cJSON_IsString(member) ? member->valuestring : NULL;
}

const char *json_text(const cJSON *object, const char *name)
{
    const char *text = json_string(object, name);

    return text ? text : "";
}

enum json_number json_number(const cJSON *object, const char *name, uint64_t *ret_number)
{
    bool is_twice;
    const cJSON *member = find_member(object, name, &is_twice);
    const double beyond = (double)(UINT64_C(1) << 53);

    if (!member)
        return is_twice ? JSON_NUMBER_WRONG : JSON_NUMBER_ABSENT;
    if (!cJSON_IsNumber(member) || !(member->valuedouble >= 0) || !(member->valuedouble < beyond))
        return JSON_NUMBER_WRONG;
    if ((double)(uint64_t)member->valuedouble < member->valuedouble)
        return JSON_NUMBER_WRONG;
    *ret_number = (uint64_t)member->valuedouble;
    return JSON_NUMBER;
}

bool json_is_text(const char *text, size_t length)
{
    return !memchr(text, '\0', length) && text_is_utf8(text, length);
}

/* ---- json append ---------------------------------------------------------------------------- */

int json_append_string(struct buffer *buffer, const char *text)
{
    struct buffer_mark before = buffer_mark(buffer);
    char escaped[256];
    const char *end;
    int r;

    if (!text)
        return buffer_append_text(buffer, "null");
    end = text + strlen(text);
    buffer_append(buffer, "\"", 1);
    while (text < end)
        buffer_append(buffer, escaped, text_escape(&text, end, escaped, sizeof(escaped)));
    r = buffer_append(buffer, "\"", 1);
    if (r < 0)
        buffer_rewind(buffer, before);
    return buffer_fail(buffer, r);
}

int json_append_name(struct buffer *buffer, const char *name)
{
    if (buffer->length && buffer->data[buffer->length - 1] != '{')
        buffer_append(buffer, ",", 1);
    buffer_append(buffer, "\"", 1);
    buffer_append_text(buffer, name);
    return buffer_append(buffer, "\":", 2);
}

int json_append_member(struct buffer *buffer, const char *name, const char *text)
{
    json_append_name(buffer, name);
    return json_append_string(buffer, text);
}
