/* Makes columns of the events of a trace, without a Python object for each event.

This file accepts a subset of JSON. Whatever it does not accept, it leaves to Python: the
call returns None, and Python decodes the same bytes (see chunks.py). So the results do
not depend on whether this file could be compiled.

Safety: nothing is read beyond the end of the buffer, nothing is written to it, and no
function calls itself, so that no input can exhaust the stack.

Only the stable interface of Python 3.11 is used: one build serves all later versions. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 64             /* levels of brackets in one value */
#define MAX_INTEGER_DIGITS 18    /* so that an integer fits into 64 bits */
#define MAX_WHOLE_US_DIGITS 16   /* digits of microseconds before the point */
#define MAX_TIME_NS (INT64_C(1) << 61) /* LIMIT_NS of times.py */

/* A text that is read from its first byte to its last. */
typedef struct {
    const char *at; /* the next byte */
    const char *end;
    bool has_non_ascii; /* among the bytes of strings that were read */
} Cursor;

/* Some bytes of a text. */
typedef struct {
    const char *at;
    Py_ssize_t length;
} Span;

static bool is_text(Span span, const char *text, Py_ssize_t length) {
    return span.length == length && !memcmp(span.at, text, (size_t)length);
}
/* Whether a span has the bytes of a string literal. */
#define IS(span, literal) is_text(span, literal, sizeof literal - 1)

/* ---- JSON ----

Each function moves the cursor behind what it is named after, and returns false if that
is not there, or not in a form that is accepted here. */

static inline void skip_blanks(Cursor *text) {
    while (text->at < text->end
           && (*text->at == ' ' || *text->at == '\n' || *text->at == '\t'
               || *text->at == '\r'))
        text->at++;
}

static inline bool skip_byte(Cursor *text, char byte) {
    if (text->at >= text->end || *text->at != byte) return false;
    text->at++;
    return true;
}

static bool is_hex_digit(char byte) {
    char lower = byte | 32;
    return (byte >= '0' && byte <= '9') || (lower >= 'a' && lower <= 'f');
}

/* What follows a backslash. Halves of surrogate pairs are left to Python. */
static bool skip_escape(Cursor *text) {
    if (text->at >= text->end) return false;
    char kind = *text->at++;
    if (kind != 'u') return kind && strchr("\"\\/bfnrt", kind) != NULL;
    bool is_surrogate =
        text->end - text->at > 1 && (text->at[0] | 32) == 'd' && text->at[1] > '7';
    if (is_surrogate) return false;
    for (int digit = 0; digit < 4; digit++) {
        if (text->at >= text->end || !is_hex_digit(*text->at)) return false;
        text->at++;
    }
    return true;
}

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define IN_EACH_BYTE(byte) (UINT64_C(0x0101010101010101) * (byte))

/* Skips ordinary bytes of a string, eight at a time: no quote, no backslash, no control
character, nothing but ASCII. Ends at the first other byte, or up to seven bytes before
the end of the text. */
static inline void skip_ordinary_bytes(Cursor *text) {
    while (text->end - text->at >= 8) {
        uint64_t word;
        memcpy(&word, text->at, 8);
        /* Subtracting 1 from each byte sets the highest bit of those that were 0; a
        borrow can only set it wrongly in the bytes above such a one. */
        uint64_t quotes = word ^ IN_EACH_BYTE('"');
        uint64_t backslashes = word ^ IN_EACH_BYTE('\\');
        uint64_t special = ((quotes - IN_EACH_BYTE(1)) & ~quotes)
                           | ((backslashes - IN_EACH_BYTE(1)) & ~backslashes)
                           | (word - IN_EACH_BYTE(0x20)) /* control characters */
                           | word;                       /* bytes from 0x80 on */
        special &= IN_EACH_BYTE(0x80);
        if (special) {
            /* The first such byte is in the lowest bits, and so is certain. */
            text->at += __builtin_ctzll(special) >> 3;
            return;
        }
        text->at += 8;
    }
}
#else
static inline void skip_ordinary_bytes(Cursor *text) { (void)text; }
#endif

/* A string whose opening quote was read. `content` is what is between the quotes. */
static inline bool read_string_tail(Cursor *text, Span *content, bool *has_escapes) {
    const char *first = text->at;
    *has_escapes = false;
    for (;;) {
        skip_ordinary_bytes(text);
        if (text->at >= text->end) return false;
        unsigned char byte = (unsigned char)*text->at++;
        if (byte == '"') {
            content->at = first;
            content->length = text->at - 1 - first;
            return true;
        }
        if (byte == '\\') {
            *has_escapes = true;
            if (!skip_escape(text)) return false;
        } else if (byte < 0x20) {
            return false;
        } else if (byte >= 0x80) {
            text->has_non_ascii = true;
        }
    }
}

static inline bool read_string(Cursor *text, Span *content, bool *has_escapes) {
    return skip_byte(text, '"') && read_string_tail(text, content, has_escapes);
}

static bool read_string_without_escapes(Cursor *text, Span *content) {
    bool has_escapes;
    return read_string(text, content, &has_escapes) && !has_escapes;
}

static inline bool is_at_digit(const Cursor *text) {
    return text->at < text->end && *text->at >= '0' && *text->at <= '9';
}

/* One digit or more. */
static inline bool skip_digits(Cursor *text) {
    if (!is_at_digit(text)) return false;
    while (is_at_digit(text)) text->at++;
    return true;
}

/* Python refuses some numbers that no double holds (1e400): what may be one is left to it. */
#define MAX_EXPONENT_DIGITS 2
#define MAX_CHARS_WITH_EXPONENT 100

static bool skip_number(Cursor *text) {
    const char *first = text->at;
    skip_byte(text, '-');
    if (!skip_byte(text, '0') && !skip_digits(text)) return false;
    if (skip_byte(text, '.') && !skip_digits(text)) return false;
    if (skip_byte(text, 'e') || skip_byte(text, 'E')) {
        if (!skip_byte(text, '+')) skip_byte(text, '-');
        const char *exponent = text->at;
        if (!skip_digits(text) || text->at - exponent > MAX_EXPONENT_DIGITS) return false;
        return text->at - first <= MAX_CHARS_WITH_EXPONENT;
    }
    return true;
}

static bool skip_word(Cursor *text, const char *word) {
    Py_ssize_t length = (Py_ssize_t)strlen(word);
    if (text->end - text->at < length) return false;
    if (memcmp(text->at, word, (size_t)length)) return false;
    text->at += length;
    return true;
}

/* A value that is neither an object nor a list. */
static bool skip_scalar(Cursor *text) {
    Span content;
    bool has_escapes;
    if (text->at >= text->end) return false;
    switch (*text->at) {
    case '"': return read_string(text, &content, &has_escapes);
    case 't': return skip_word(text, "true");
    case 'f': return skip_word(text, "false");
    case 'n': return skip_word(text, "null");
    default: return skip_number(text);
    }
}

/* A key of an object, its colon, and the blanks before its value. */
static bool read_key(Cursor *text, Span *key, bool *has_escapes) {
    if (!read_string(text, key, has_escapes)) return false;
    skip_blanks(text);
    if (!skip_byte(text, ':')) return false;
    skip_blanks(text);
    return true;
}

static bool read_key_without_escapes(Cursor *text, Span *key) {
    bool has_escapes;
    return read_key(text, key, &has_escapes) && !has_escapes;
}

/* Any value, whose syntax is checked. */
static bool skip_value(Cursor *text) {
    char closing[MAX_DEPTH]; /* the bracket that closes each open object and list */
    int depth = 0;
    Span key;
    bool has_escapes;
    for (;;) { /* each time a value is expected */
        bool is_just_opened = false;
        if (text->at >= text->end) return false;
        if (*text->at == '{' || *text->at == '[') {
            if (depth == MAX_DEPTH) return false;
            closing[depth++] = *text->at++ == '{' ? '}' : ']';
            skip_blanks(text);
            is_just_opened = true;
        } else if (!skip_scalar(text)) {
            return false;
        }
        for (;;) { /* what may follow a value, or an opening bracket */
            if (!depth) return true;
            if (!is_just_opened) skip_blanks(text);
            if (skip_byte(text, closing[depth - 1])) {
                depth--;
                is_just_opened = false;
                continue;
            }
            if (!is_just_opened) {
                if (!skip_byte(text, ',')) return false;
                skip_blanks(text);
            }
            bool is_in_object = closing[depth - 1] == '}';
            if (is_in_object && !read_key(text, &key, &has_escapes)) return false;
            break;
        }
    }
}

/* ---- Numbers ---- */

static bool has_leading_zero(const char *first, const char *end) {
    return end - first > 1 && *first == '0';
}

static bool is_at_exponent(const Cursor *text) {
    return text->at < text->end && (*text->at == 'e' || *text->at == 'E');
}

/* A number without a fraction and an exponent, of at most MAX_INTEGER_DIGITS. */
static bool read_integer(Cursor *text, int64_t *integer) {
    bool is_negative = skip_byte(text, '-');
    const char *first = text->at;
    int64_t sum = 0;
    while (is_at_digit(text)) {
        if (text->at - first == MAX_INTEGER_DIGITS) return false;
        sum = sum * 10 + (*text->at++ - '0');
    }
    if (text->at == first || has_leading_zero(first, text->at)) return false;
    if (is_at_exponent(text) || (text->at < text->end && *text->at == '.')) return false;
    *integer = is_negative ? -sum : sum;
    return true;
}

/* The digits behind the point of a time in microseconds: nanoseconds, half to even.
`whole_ns` are those before the point. */
static bool read_fraction_ns(Cursor *text, int64_t whole_ns, int64_t *ns) {
    int64_t digit_ns = 100;          /* what the next digit counts */
    bool is_half = false;            /* the first digit below 1 ns is 5 or more */
    bool is_above_half = false;      /* and the rest is more than one half */
    int64_t sum = whole_ns;
    if (!is_at_digit(text)) return false;
    for (int place = 0; is_at_digit(text); place++, text->at++) {
        int digit = *text->at - '0';
        if (place < 3) {
            sum += digit * digit_ns;
            digit_ns /= 10;
        } else if (place == 3) {
            is_half = digit >= 5;
            is_above_half = digit > 5;
        } else if (digit != 0) {
            is_above_half = true;
        }
    }
    bool is_odd = sum & 1;
    *ns = sum + (is_half && (is_above_half || is_odd));
    return true;
}

/* A time in microseconds that is not negative, as nanoseconds. */
static bool read_time_ns(Cursor *text, int64_t *ns) {
    const char *first = text->at;
    int64_t us = 0;
    while (is_at_digit(text)) {
        if (text->at - first == MAX_WHOLE_US_DIGITS) return false;
        us = us * 10 + (*text->at++ - '0');
    }
    if (text->at == first || has_leading_zero(first, text->at)) return false;
    if (us >= MAX_TIME_NS / 1000) return false;
    *ns = us * 1000;
    if (skip_byte(text, '.') && !read_fraction_ns(text, *ns, ns)) return false;
    return !is_at_exponent(text);
}

/* ---- Memory ---- */

/* Memory comes from libc: PyMem_Realloc needs the GIL, which is not held while a text is
read, and the stable interface has no PyMem_RawRealloc before Python 3.13.

Returns false without memory; then the old memory stays as it is. */
static bool resize(void **memory, Py_ssize_t capacity, size_t item_bytes) {
    void *resized = realloc(*memory, (size_t)capacity * item_bytes);
    if (!resized) return false;
    *memory = resized;
    return true;
}
#define RESIZE(pointer, capacity) \
    resize((void **)&(pointer), capacity, sizeof *(pointer))

static Py_ssize_t doubled(Py_ssize_t capacity, Py_ssize_t first_capacity) {
    return capacity ? capacity * 2 : first_capacity;
}

/* ---- Tables of distinct texts ---- */

/* Numbers distinct texts 0, 1, ... in the order in which they first occur. A hash table
with open addressing. */
typedef struct {
    Span *spans;      /* by number; they point into the text, or to copies */
    uint64_t *hashes; /* by number */
    Py_ssize_t count;
    Py_ssize_t capacity;   /* of spans and hashes */
    int32_t *slots;        /* numbers; -1: free. At most half of them are in use */
    Py_ssize_t slot_count; /* a power of two */
} Table;

/* Another one in each process, so that no file can be made whose texts collide. */
static uint64_t hash_seed;

static uint64_t mixed(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (hash >> 29);
}

/* Eight bytes at a time; the last steps are the finalizer of MurmurHash3. */
static uint64_t hash_of(Span text) {
    uint64_t word;
    uint64_t hash = hash_seed ^ (uint64_t)text.length;
    for (; text.length >= 8; text.at += 8, text.length -= 8) {
        memcpy(&word, text.at, 8);
        hash = mixed(hash, word);
    }
    word = 0;
    memcpy(&word, text.at, (size_t)text.length);
    hash = mixed(hash, word);
    hash = (hash ^ (hash >> 33)) * UINT64_C(0xFF51AFD7ED558CCD);
    hash = (hash ^ (hash >> 33)) * UINT64_C(0xC4CEB9FE1A85EC53);
    return hash ^ (hash >> 33);
}

static bool double_slots(Table *table) {
    Py_ssize_t slot_count = doubled(table->slot_count, 256);
    if (!RESIZE(table->slots, slot_count)) return false;
    table->slot_count = slot_count;
    memset(table->slots, -1, (size_t)slot_count * sizeof *table->slots);
    uint64_t mask = (uint64_t)(slot_count - 1);
    for (Py_ssize_t n = 0; n < table->count; n++) {
        uint64_t slot = table->hashes[n] & mask;
        while (table->slots[slot] >= 0) slot = (slot + 1) & mask;
        table->slots[slot] = (int32_t)n;
    }
    return true;
}

/* The number of a text, which has to outlive the table; -1 without memory. */
static int32_t number_of(Table *table, Span text) {
    if (table->count * 2 >= table->slot_count && !double_slots(table)) return -1;
    uint64_t hash = hash_of(text);
    uint64_t mask = (uint64_t)(table->slot_count - 1);
    uint64_t slot = hash & mask;
    for (; table->slots[slot] >= 0; slot = (slot + 1) & mask) {
        int32_t n = table->slots[slot];
        Span known = table->spans[n];
        if (table->hashes[n] == hash && is_text(text, known.at, known.length)) return n;
    }
    if (table->count == table->capacity) {
        Py_ssize_t capacity = doubled(table->capacity, 128);
        if (!RESIZE(table->spans, capacity)) return -1;
        if (!RESIZE(table->hashes, capacity)) return -1;
        table->capacity = capacity;
    }
    int32_t number = (int32_t)table->count++;
    table->spans[number] = text;
    table->hashes[number] = hash;
    table->slots[slot] = number;
    return number;
}

/* The same for a text that may change afterwards: the table keeps a copy of it. */
static int32_t number_of_copy(Table *table, Span text) {
    Py_ssize_t count_before = table->count;
    int32_t number = number_of(table, text);
    if (number == count_before) {
        char *copy = malloc((size_t)text.length);
        table->spans[number].at = copy;
        if (!copy) return -1;
        memcpy(copy, text.at, (size_t)text.length);
    }
    return number;
}

static void free_table(Table *table) {
    free(table->spans);
    free(table->hashes);
    free(table->slots);
}

static void free_table_of_copies(Table *table) {
    for (Py_ssize_t n = 0; n < table->count; n++) free((void *)table->spans[n].at);
    free_table(table);
}

/* ---- Columns as Python objects ---- */

/* Memory of this file that Python may read (buffer protocol), and that is freed with the
object: numpy makes an array of it without a copy. */
typedef struct {
    PyObject_HEAD
    void *memory; /* from malloc; may be NULL if there are no bytes */
    Py_ssize_t bytes;
} Column;

typedef struct {
    PyTypeObject *column_type;
} ModuleState;

static int column_getbuffer(PyObject *self, Py_buffer *view, int flags) {
    Column *column = (Column *)self;
    void *memory = column->memory ? column->memory : "";
    int is_readonly = 1;
    return PyBuffer_FillInfo(view, self, memory, column->bytes, is_readonly, flags);
}

static void column_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    free(((Column *)self)->memory);
    PyObject_Free(self);
    Py_DECREF(type); /* each instance holds a reference to it */
}

static PyType_Slot column_slots[] = {
    {Py_bf_getbuffer, column_getbuffer},
    {Py_tp_dealloc, column_dealloc},
    {Py_tp_doc, "The bytes of a column."},
    {0, NULL},
};

static PyType_Spec column_spec = {
    .name = "fusetui.trace.read.scan.Column",
    .basicsize = sizeof(Column),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = column_slots,
};

/* A Column that takes over memory from malloc, of which the first bytes are in use.
NULL, with an exception, without memory; then the memory stays with the caller. */
static PyObject *take_column(PyObject *module, void **memory, Py_ssize_t bytes) {
    ModuleState *state = PyModule_GetState(module);
    Column *column = PyObject_New(Column, state->column_type);
    if (!column) return NULL;
    if (bytes) resize(memory, bytes, 1); /* returns what was reserved beyond it */
    column->memory = *memory;
    column->bytes = bytes;
    *memory = NULL;
    return (PyObject *)column;
}
#define TAKE_COLUMN(module, pointer, count) \
    take_column(module, (void **)&(pointer), (count) * (Py_ssize_t)sizeof *(pointer))

static PyObject *texts_of(const Table *table) {
    PyObject *texts = PyList_New(table->count);
    for (Py_ssize_t n = 0; texts && n < table->count; n++) {
        Span span = table->spans[n];
        PyObject *text = PyBytes_FromStringAndSize(span.at, span.length);
        if (text) PyList_SetItem(texts, n, text);
        else Py_CLEAR(texts);
    }
    return texts;
}

/* ---- Events ---- */

typedef struct {
    unsigned char phase; /* ASCII, not 0 */
    Span name, category;
    Span pid, tid;          /* as written: strings with their quotes */
    Span original_stream;   /* of an event that was moved to a lane; length 0: absent */
    Span whole;             /* the event itself */
    Span start;             /* as written */
    int64_t start_ns, duration_ns;
    int64_t correlation, external_id, device; /* -1: absent */
    bool has_odd_device; /* its device is no integer, and Python decides what it means */
} Event;

/* Bits, so that a key that occurs twice is noticed: that is left to Python. */
enum EventField {
    FIELD_OTHER = 0,
    FIELD_PHASE = 1,
    FIELD_CATEGORY = 2,
    FIELD_NAME = 4,
    FIELD_PID = 8,
    FIELD_TID = 16,
    FIELD_START = 32,
    FIELD_DURATION = 64,
    FIELD_ARGS = 128,
};

enum ArgField {
    ARG_OTHER = 0,
    ARG_CORRELATION = 1,
    ARG_EXTERNAL_ID = 2,
    ARG_EXTERNAL_ID_2021 = 4,
    ARG_DEVICE = 8,
    ARG_ORIGINAL_STREAM = 16,
};

static int event_field_of(Span key) {
    switch (key.length) {
    case 2:
        if (IS(key, "ph")) return FIELD_PHASE;
        return IS(key, "ts") ? FIELD_START : FIELD_OTHER;
    case 3:
        if (IS(key, "cat")) return FIELD_CATEGORY;
        if (IS(key, "pid")) return FIELD_PID;
        if (IS(key, "tid")) return FIELD_TID;
        return IS(key, "dur") ? FIELD_DURATION : FIELD_OTHER;
    case 4:
        if (IS(key, "name")) return FIELD_NAME;
        return IS(key, "args") ? FIELD_ARGS : FIELD_OTHER;
    default: return FIELD_OTHER;
    }
}

static int arg_field_of(Span key) {
    switch (key.length) {
    case 6: return IS(key, "device") ? ARG_DEVICE : ARG_OTHER;
    case 11:
        if (IS(key, "correlation")) return ARG_CORRELATION;
        if (IS(key, "External id")) return ARG_EXTERNAL_ID;
        return IS(key, "external id") ? ARG_EXTERNAL_ID_2021 : ARG_OTHER;
    case 15: return IS(key, "original_stream") ? ARG_ORIGINAL_STREAM : ARG_OTHER;
    default: return ARG_OTHER;
    }
}

/* Args that do not matter for slices, but that Python decodes of every event (Args of
events.py): it refuses a chunk where a number in them is out of range. */
static bool is_decoded_by_python(Span key) {
    return IS(key, "name") || IS(key, "labels") || IS(key, "sort_index");
}

/* A value that Python surely decodes: a string, an integer of 64 bits, true, false or
null. */
static bool skip_surely_decoded(Cursor *text) {
    int64_t integer;
    if (text->at >= text->end || *text->at == '{' || *text->at == '[') return false;
    bool is_number = *text->at == '-' || is_at_digit(text);
    return is_number ? read_integer(text, &integer) : skip_scalar(text);
}

static bool read_device(Cursor *text, Event *event) {
    const char *first = text->at;
    int64_t device;
    event->has_odd_device = !read_integer(text, &device);
    if (event->has_odd_device) {
        text->at = first;
        return skip_surely_decoded(text);
    }
    bool is_in_range = device >= 0 && device < (INT64_C(1) << 31);
    event->device = is_in_range ? device : -1;
    return true;
}

static bool read_original_stream(Cursor *text, Event *event) {
    int64_t stream;
    const char *first = text->at;
    if (!read_integer(text, &stream) || stream < 0) return false;
    event->original_stream = (Span){first, text->at - first};
    return true;
}

/* Both spellings of the external id may occur; the larger one counts. */
static bool read_external_id(Cursor *text, Event *event) {
    int64_t external_id;
    if (!read_integer(text, &external_id)) return false;
    if (external_id > event->external_id) event->external_id = external_id;
    return true;
}

static bool read_arg(Cursor *text, Event *event, int arg, Span key) {
    switch (arg) {
    case ARG_CORRELATION: return read_integer(text, &event->correlation);
    case ARG_EXTERNAL_ID:
    case ARG_EXTERNAL_ID_2021: return read_external_id(text, event);
    case ARG_DEVICE: return read_device(text, event);
    case ARG_ORIGINAL_STREAM: return read_original_stream(text, event);
    default:
        return is_decoded_by_python(key) ? skip_surely_decoded(text) : skip_value(text);
    }
}

static bool read_args(Cursor *text, Event *event) {
    int seen = 0; /* ArgFields */
    Span key;
    if (!skip_byte(text, '{')) return false;
    skip_blanks(text);
    if (skip_byte(text, '}')) return true;
    do {
        skip_blanks(text);
        if (!read_key_without_escapes(text, &key)) return false;
        int arg = arg_field_of(key);
        if (seen & arg) return false;
        seen |= arg;
        if (!read_arg(text, event, arg, key)) return false;
        skip_blanks(text);
    } while (skip_byte(text, ','));
    return skip_byte(text, '}');
}

static bool read_phase(Cursor *text, unsigned char *phase) {
    Span content;
    if (!read_string_without_escapes(text, &content) || content.length != 1) return false;
    *phase = (unsigned char)*content.at;
    return *phase > 0 && *phase < 128;
}

/* The id of a process or thread, as written: an integer, or a string with its quotes.
Ids are compared as they are written, so one that can be written in two ways (-0, "\u0061")
is left to Python. */
static bool read_id(Cursor *text, Span *id) {
    const char *first = text->at;
    int64_t integer;
    bool has_escapes;
    if (skip_byte(text, '"')) {
        if (!read_string_tail(text, id, &has_escapes) || has_escapes) return false;
    } else if (!read_integer(text, &integer) || (integer == 0 && *first == '-')) {
        return false;
    }
    *id = (Span){first, text->at - first};
    return true;
}

static bool read_start(Cursor *text, Event *event) {
    const char *first = text->at;
    if (!read_time_ns(text, &event->start_ns)) return false;
    event->start = (Span){first, text->at - first};
    return true;
}

static bool read_event_field(Cursor *text, Event *event, int field) {
    bool has_escapes;
    switch (field) {
    case FIELD_PHASE: return read_phase(text, &event->phase);
    case FIELD_CATEGORY: return read_string_without_escapes(text, &event->category);
    case FIELD_NAME: return read_string(text, &event->name, &has_escapes);
    case FIELD_PID: return read_id(text, &event->pid);
    case FIELD_TID: return read_id(text, &event->tid);
    case FIELD_START: return read_start(text, event);
    case FIELD_DURATION: return read_time_ns(text, &event->duration_ns);
    case FIELD_ARGS: return read_args(text, event);
    default: return skip_value(text);
    }
}

/* What an event has whose keys are absent. */
static const Event NO_FIELDS = {
    .name = {"", 0},
    .category = {"", 0},
    .pid = {"null", 4},
    .tid = {"null", 4},
    .original_stream = {"", 0},
    .start = {"", 0},
    .correlation = -1,
    .external_id = -1,
    .device = -1,
};

static bool read_event(Cursor *text, Event *event) {
    int seen = 0; /* EventFields */
    Span key;
    *event = NO_FIELDS;
    const char *first = text->at;
    if (!skip_byte(text, '{')) return false;
    do {
        skip_blanks(text);
        if (!read_key_without_escapes(text, &key)) return false;
        int field = event_field_of(key);
        if (seen & field) return false;
        seen |= field;
        if (!read_event_field(text, event, field)) return false;
        skip_blanks(text);
    } while (skip_byte(text, ','));
    if (!skip_byte(text, '}') || !(seen & FIELD_PHASE)) return false;
    event->whole = (Span){first, text->at - first};
    return true;
}

/* ---- Events to columns ---- */

/* How a step ended. */
enum Status {
    FAILED = -1,        /* without memory, or a Python exception is set */
    LEFT_TO_PYTHON = 0, /* the text has a form that is not accepted here */
    DONE = 1,
};

typedef struct {
    int32_t pid, tid; /* numbers of their texts */
    int64_t device;   /* -1: none */
} Lane;

typedef struct {
    /* By slice. */
    int64_t *start_ns, *duration_ns, *correlation, *external_id;
    int64_t *order;                 /* the index of the event in the text */
    int32_t *name, *category, *lane; /* numbers in the tables below */
    Py_ssize_t slice_count, slice_capacity;

    int32_t *labels_in_order; /* of each label (ph M), its number in distinct_labels */
    Py_ssize_t label_count, label_capacity;

    Table names, categories, ids, distinct_labels;
    Table lanes;         /* its texts are the bytes of Lanes */
    char *is_gpu_category; /* by category: whether its events run on a stream */

    int64_t phase_counts[128];
    int64_t first_ns, last_ns; /* of the events that are no slices */
    Py_ssize_t event_count;

    PyObject *is_on_gpu;     /* a Python function from the name of a category to a bool */
    PyThreadState *released; /* of this thread, while it does not hold the GIL */
} Columns;

/* Whether events of this category run on a stream of a GPU, or FAILED. Asks Python, once
for each category. */
static int ask_is_on_gpu(Columns *columns, int32_t category) {
    Span name = columns->categories.spans[category];
    if (!RESIZE(columns->is_gpu_category, columns->categories.count)) return FAILED;
    PyEval_RestoreThread(columns->released);
    PyObject *answer =
        PyObject_CallFunction(columns->is_on_gpu, "y#", name.at, name.length);
    int is_on_gpu = answer ? PyObject_IsTrue(answer) : FAILED;
    Py_XDECREF(answer);
    columns->released = PyEval_SaveThread();
    columns->is_gpu_category[category] = (char)is_on_gpu;
    return is_on_gpu;
}

/* The number of the lane of a slice; -1 without memory. */
static int32_t lane_of(Columns *columns, const Event *event, bool is_on_gpu) {
    bool was_moved = is_on_gpu && event->original_stream.length;
    Lane lane;
    memset(&lane, 0, sizeof lane); /* bytes between the fields are compared too */
    lane.pid = number_of(&columns->ids, event->pid);
    lane.tid = number_of(&columns->ids, was_moved ? event->original_stream : event->tid);
    lane.device = is_on_gpu ? event->device : -1;
    if (lane.pid < 0 || lane.tid < 0) return -1;
    return number_of_copy(&columns->lanes, (Span){(char *)&lane, sizeof lane});
}

static bool make_room_for_slice(Columns *columns) {
    if (columns->slice_count < columns->slice_capacity) return true;
    Py_ssize_t capacity = doubled(columns->slice_capacity, 4096);
    bool is_done = RESIZE(columns->start_ns, capacity)
                   && RESIZE(columns->duration_ns, capacity)
                   && RESIZE(columns->correlation, capacity)
                   && RESIZE(columns->external_id, capacity)
                   && RESIZE(columns->order, capacity)
                   && RESIZE(columns->name, capacity)
                   && RESIZE(columns->category, capacity)
                   && RESIZE(columns->lane, capacity);
    if (is_done) columns->slice_capacity = capacity;
    return is_done;
}

static int add_slice(Columns *columns, const Event *event) {
    if (event->start_ns + event->duration_ns > MAX_TIME_NS) return LEFT_TO_PYTHON;
    if (!make_room_for_slice(columns)) return FAILED;
    Py_ssize_t known_categories = columns->categories.count;
    int32_t category = number_of(&columns->categories, event->category);
    int32_t name = number_of(&columns->names, event->name);
    if (category < 0 || name < 0) return FAILED;
    bool is_new_category = category == known_categories;
    int is_on_gpu = is_new_category ? ask_is_on_gpu(columns, category)
                                    : columns->is_gpu_category[category];
    if (is_on_gpu < 0) return FAILED;
    if (is_on_gpu && event->has_odd_device) return LEFT_TO_PYTHON;
    int32_t lane = lane_of(columns, event, is_on_gpu);
    if (lane < 0) return FAILED;

    Py_ssize_t row = columns->slice_count++;
    columns->start_ns[row] = event->start_ns;
    columns->duration_ns[row] = event->duration_ns;
    columns->correlation[row] = event->correlation;
    columns->external_id[row] = event->external_id;
    columns->order[row] = columns->event_count;
    columns->name[row] = name;
    columns->category[row] = category;
    columns->lane[row] = lane;
    return DONE;
}

/* Writers repeat labels, so that Python decodes each distinct one once. */
static int add_label(Columns *columns, const Event *event) {
    if (columns->label_count == columns->label_capacity) {
        Py_ssize_t capacity = doubled(columns->label_capacity, 1024);
        if (!RESIZE(columns->labels_in_order, capacity)) return FAILED;
        columns->label_capacity = capacity;
    }
    int32_t number = number_of(&columns->distinct_labels, event->whole);
    if (number < 0) return FAILED;
    columns->labels_in_order[columns->label_count++] = number;
    return DONE;
}

/* Instant events of the CPU, which torch's Python exporter writes as slices that last
until the next one (INSTANT of events.py). */
static const char INSTANT_CATEGORY[] = "cpu_instant_event";

/* Phases of slices that are written as two events: Python pairs them by their ids. */
static const char PHASES_OF_PAIRS[] = "BEbeSF";

/* Whether a time in microseconds has digits below a nanosecond. */
static bool is_finer_than_ns(Span time) {
    const char *point = memchr(time.at, '.', (size_t)time.length);
    if (!point) return false;
    for (const char *digit = point + 4; digit < time.at + time.length; digit++)
        if (*digit != '0') return true;
    return false;
}

static int add_event(Columns *columns, Event *event) {
    int status = DONE;
    if (event->phase == 'X' && IS(event->category, INSTANT_CATEGORY)) event->phase = 'i';
    if (event->phase == 'X') {
        status = add_slice(columns, event);
    } else if (strchr(PHASES_OF_PAIRS, event->phase)) {
        return LEFT_TO_PYTHON;
    } else {
        /* Python has this time as a float, which may be rounded the other way. */
        if (is_finer_than_ns(event->start)) return LEFT_TO_PYTHON;
        if (event->start_ns < columns->first_ns) columns->first_ns = event->start_ns;
        if (event->start_ns > columns->last_ns) columns->last_ns = event->start_ns;
        if (event->phase == 'M') status = add_label(columns, event);
    }
    columns->phase_counts[event->phase]++;
    columns->event_count++;
    return status;
}

/* Reads events with commas between them, up to the end of the text. */
static int add_events(Cursor *text, Columns *columns) {
    Event event;
    do {
        skip_blanks(text);
        if (!read_event(text, &event)) return LEFT_TO_PYTHON;
        int status = add_event(columns, &event);
        if (status != DONE) return status;
        skip_blanks(text);
    } while (skip_byte(text, ','));
    return text->at == text->end ? DONE : LEFT_TO_PYTHON;
}

/* A list of (pid, tid, device), the first two as indices into the ids. */
static PyObject *lanes_of(const Columns *columns) {
    PyObject *lanes = PyList_New(columns->lanes.count);
    for (Py_ssize_t n = 0; lanes && n < columns->lanes.count; n++) {
        const Lane *lane = (const Lane *)columns->lanes.spans[n].at;
        PyObject *item = Py_BuildValue("(iiL)", (int)lane->pid, (int)lane->tid,
                                       (long long)lane->device);
        if (item) PyList_SetItem(lanes, n, item);
        else Py_CLEAR(lanes);
    }
    return lanes;
}

/* A dict from each phase that occurs to how many events have it. */
static PyObject *phases_of(const Columns *columns) {
    PyObject *phases = PyDict_New();
    for (int phase = 0; phases && phase < 128; phase++) {
        if (!columns->phase_counts[phase]) continue;
        char name[2] = {(char)phase, 0};
        PyObject *count = PyLong_FromLongLong(columns->phase_counts[phase]);
        if (!count || PyDict_SetItemString(phases, name, count) < 0) Py_CLEAR(phases);
        Py_XDECREF(count);
    }
    return phases;
}

/* The dict that scan.pyi describes. Takes the columns away from `columns`. */
static PyObject *result_of(PyObject *module, Columns *columns) {
    Py_ssize_t slices = columns->slice_count;
    /* N passes a reference on; the whole fails if one of them is NULL. */
    return Py_BuildValue(
        "{sN sN sN sN sN sN sN sN sN sN sN sN sN sN sN sL sL}",
        "phases", phases_of(columns),
        "start", TAKE_COLUMN(module, columns->start_ns, slices),
        "dur", TAKE_COLUMN(module, columns->duration_ns, slices),
        "correlation", TAKE_COLUMN(module, columns->correlation, slices),
        "external_id", TAKE_COLUMN(module, columns->external_id, slices),
        "order", TAKE_COLUMN(module, columns->order, slices),
        "name", TAKE_COLUMN(module, columns->name, slices),
        "category", TAKE_COLUMN(module, columns->category, slices),
        "lane", TAKE_COLUMN(module, columns->lane, slices),
        "names", texts_of(&columns->names),
        "categories", texts_of(&columns->categories),
        "ids", texts_of(&columns->ids),
        "lanes", lanes_of(columns),
        "distinct_labels", texts_of(&columns->distinct_labels),
        "labels_in_order",
        TAKE_COLUMN(module, columns->labels_in_order, columns->label_count),
        "first_ns", (long long)columns->first_ns,
        "last_ns", (long long)columns->last_ns);
}

static void free_columns(Columns *columns) {
    free(columns->start_ns);
    free(columns->duration_ns);
    free(columns->correlation);
    free(columns->external_id);
    free(columns->order);
    free(columns->name);
    free(columns->category);
    free(columns->lane);
    free(columns->labels_in_order);
    free(columns->is_gpu_category);
    free_table(&columns->names);
    free_table(&columns->categories);
    free_table(&columns->ids);
    free_table(&columns->distinct_labels);
    free_table_of_copies(&columns->lanes);
}

/* Whether a text is UTF-8. */
static bool is_utf8(const Cursor *text, const Py_buffer *buffer) {
    if (!text->has_non_ascii) return true;
    PyObject *decoded = PyUnicode_DecodeUTF8(buffer->buf, buffer->len, "strict");
    if (!decoded) PyErr_Clear();
    Py_XDECREF(decoded);
    return decoded != NULL;
}

static PyObject *nothing_for(int status) {
    if (status == LEFT_TO_PYTHON) return Py_NewRef(Py_None);
    if (!PyErr_Occurred()) PyErr_NoMemory();
    return NULL;
}

static PyObject *events(PyObject *module, PyObject *arguments) {
    Py_buffer buffer;
    Columns columns;
    memset(&columns, 0, sizeof columns);
    columns.first_ns = INT64_MAX;
    columns.last_ns = INT64_MIN;
    if (!PyArg_ParseTuple(arguments, "y*O", &buffer, &columns.is_on_gpu)) return NULL;
    Cursor text = {buffer.buf, (const char *)buffer.buf + buffer.len, false};
    int status = LEFT_TO_PYTHON;
    if (buffer.len < INT32_MAX) { /* so that all numbers fit into 32 bits */
        columns.released = PyEval_SaveThread();
        status = add_events(&text, &columns);
        PyEval_RestoreThread(columns.released);
    }
    if (status == DONE && !is_utf8(&text, &buffer)) status = LEFT_TO_PYTHON;
    PyObject *result =
        status == DONE ? result_of(module, &columns) : nothing_for(status);
    free_columns(&columns);
    PyBuffer_Release(&buffer);
    return result;
}

/* ---- Some args of some events ---- */

enum { MAX_ARG_NAMES = 32 }; /* of one call */

/* What is asked of the events, and what the present event has of it. */
typedef struct {
    Span names[MAX_ARG_NAMES];
    Py_ssize_t name_count;
    Py_ssize_t plain_count; /* names that are asked of the events at `places`; those
                               behind them are the totals, asked of memory events */
    uint64_t name_lengths;  /* bit n % 64: some name has n bytes */
    bool wants_sequences;

    Span values[MAX_ARG_NAMES]; /* as written; length 0: absent */
    Span event_name, phase, category;
    int64_t sequence_number, forward_thread; /* -1: absent */

    char *joined_values; /* room for the values of one event, with zeros between them */
    Py_ssize_t joined_capacity;
} Request;

typedef struct {
    const int64_t *places; /* the events that are asked for, ascending */
    Py_ssize_t place_count;
    int32_t *numbers; /* by place: the number of its values in `distinct`, -1 for none */
    Table distinct;

    int64_t *sequences; /* rows of SEQUENCE_COLUMNS */
    Py_ssize_t sequence_count, sequence_capacity; /* rows */

    double *totals; /* one value per total and memory event; nan for none */
    Py_ssize_t total_count, total_capacity;
} Answers;

/* place, sequence number and forward thread of an event that has a sequence number */
enum { SEQUENCE_COLUMNS = 3 };

/* An arg that may be one of the two that autograd writes. */
static bool read_sequence_arg(Cursor *text, Span key, Request *request) {
    int64_t *number = NULL;
    if (IS(key, "Sequence number")) number = &request->sequence_number;
    if (IS(key, "Fwd thread id")) number = &request->forward_thread;
    if (!number) return skip_value(text);
    bool is_second = *number != -1;
    return !is_second && read_integer(text, number) && *number >= 0;
}

static bool keep_value(Request *request, Span key, Span value) {
    bool may_be_asked = request->name_lengths >> (key.length & 63) & 1;
    if (!may_be_asked) return true;
    for (Py_ssize_t n = 0; n < request->name_count; n++) {
        if (!is_text(key, request->names[n].at, request->names[n].length)) continue;
        if (request->values[n].length) return false; /* it occurs twice */
        request->values[n] = value;
    }
    return true;
}

static bool read_wanted_args(Cursor *text, Request *request) {
    Span key;
    if (!skip_byte(text, '{')) return false;
    skip_blanks(text);
    if (skip_byte(text, '}')) return true;
    do {
        skip_blanks(text);
        if (!read_key_without_escapes(text, &key)) return false;
        const char *first = text->at;
        bool is_read = request->wants_sequences ? read_sequence_arg(text, key, request)
                                                : skip_value(text);
        if (!is_read) return false;
        if (!keep_value(request, key, (Span){first, text->at - first})) return false;
        skip_blanks(text);
    } while (skip_byte(text, ','));
    return skip_byte(text, '}');
}

/* A name of up to 8 characters ("[memory]") may be written as escapes of 6 bytes each.
A longer one is another name, whatever its escapes are. */
enum { MAX_ESCAPED_BYTES = 48 };

/* What tells memory events from others. Its time has to be one, as Python decodes it. */
static bool read_kind_field(Cursor *text, Span key, Request *request) {
    int64_t ns;
    bool has_escapes;
    if (IS(key, "ph")) return read_string_without_escapes(text, &request->phase);
    if (IS(key, "cat")) return read_string_without_escapes(text, &request->category);
    if (IS(key, "ts")) return read_time_ns(text, &ns);
    if (!IS(key, "name")) return skip_value(text);
    if (!read_string(text, &request->event_name, &has_escapes)) return false;
    return !has_escapes || request->event_name.length > MAX_ESCAPED_BYTES;
}

static void forget_event(Request *request) {
    for (Py_ssize_t n = 0; n < request->name_count; n++) request->values[n].length = 0;
    request->event_name.length = 0;
    request->phase.length = 0;
    request->category.length = 0;
    request->sequence_number = -1;
    request->forward_thread = -1;
}

static bool read_wanted_event(Cursor *text, Request *request) {
    bool wants_totals = request->name_count > request->plain_count;
    bool has_args = false;
    Span key;
    forget_event(request);
    if (!skip_byte(text, '{')) return false;
    do {
        skip_blanks(text);
        if (!read_key_without_escapes(text, &key)) return false;
        if (IS(key, "args")) {
            if (has_args || !read_wanted_args(text, request)) return false;
            has_args = true;
        } else if (wants_totals) {
            if (!read_kind_field(text, key, request)) return false;
        } else if (!skip_value(text)) {
            return false;
        }
        skip_blanks(text);
    } while (skip_byte(text, ','));
    return skip_byte(text, '}');
}

enum { NO_VALUES = -1, NO_MEMORY = -2 };

/* The number of the values of the present event among the distinct ones. */
static int32_t number_of_values(Request *request, Table *distinct) {
    Py_ssize_t separators = request->plain_count - 1;
    Py_ssize_t length = separators;
    for (Py_ssize_t n = 0; n < request->plain_count; n++)
        length += request->values[n].length;
    if (length == separators) return NO_VALUES;
    if (length > request->joined_capacity) {
        if (!RESIZE(request->joined_values, length * 2)) return NO_MEMORY;
        request->joined_capacity = length * 2;
    }
    Py_ssize_t at = 0;
    for (Py_ssize_t n = 0; n < request->plain_count; n++) {
        Span value = request->values[n];
        if (n) request->joined_values[at++] = 0;
        if (!value.length) continue;
        memcpy(request->joined_values + at, value.at, (size_t)value.length);
        at += value.length;
    }
    int32_t number = number_of_copy(distinct, (Span){request->joined_values, length});
    return number < 0 ? NO_MEMORY : number;
}

static int add_sequence(Answers *answers, const Request *request, int64_t place) {
    if (request->sequence_number < 0) return DONE;
    if (answers->sequence_count == answers->sequence_capacity) {
        Py_ssize_t capacity = doubled(answers->sequence_capacity, 1024);
        if (!RESIZE(answers->sequences, capacity * SEQUENCE_COLUMNS)) return FAILED;
        answers->sequence_capacity = capacity;
    }
    int64_t *row = answers->sequences + SEQUENCE_COLUMNS * answers->sequence_count++;
    row[0] = place;
    row[1] = request->sequence_number;
    row[2] = request->forward_thread < 0 ? 0 : request->forward_thread;
    return DONE;
}

static bool is_memory_event(const Request *request) {
    if (!IS(request->event_name, "[memory]")) return false;
    if (IS(request->phase, "i") || IS(request->phase, "I")) return true;
    return IS(request->phase, "X") && IS(request->category, INSTANT_CATEGORY);
}

/* The totals of the present event, if it is a memory event. */
static int add_totals(Answers *answers, const Request *request) {
    Py_ssize_t width = request->name_count - request->plain_count;
    if (!width || !is_memory_event(request)) return DONE;
    if (answers->total_count + width > answers->total_capacity) {
        Py_ssize_t capacity = doubled(answers->total_capacity, 4096);
        if (!RESIZE(answers->totals, capacity)) return FAILED;
        answers->total_capacity = capacity;
    }
    for (Py_ssize_t n = request->plain_count; n < request->name_count; n++) {
        Span value = request->values[n];
        double total = Py_NAN;
        if (value.length) {
            Cursor text = {value.at, value.at + value.length, false};
            int64_t integer;
            if (!read_integer(&text, &integer)) return LEFT_TO_PYTHON;
            if (text.at != text.end) return LEFT_TO_PYTHON;
            total = (double)integer;
        }
        answers->totals[answers->total_count++] = total;
    }
    return DONE;
}

/* Reads events with commas between them, up to the end of the text; a comma may stand
behind the last one. */
static int answer_all(Cursor *text, Request *request, Answers *answers) {
    Py_ssize_t next = 0; /* the next of the places */
    int64_t place = 0;
    do {
        skip_blanks(text);
        if (!read_wanted_event(text, request)) return LEFT_TO_PYTHON;
        bool is_wanted = next < answers->place_count && answers->places[next] == place;
        if (is_wanted) {
            int32_t number = number_of_values(request, &answers->distinct);
            if (number == NO_MEMORY) return FAILED;
            /* the same place may be asked for several times */
            while (next < answers->place_count && answers->places[next] == place)
                answers->numbers[next++] = number;
        }
        int status = add_sequence(answers, request, place);
        if (status == DONE) status = add_totals(answers, request);
        if (status != DONE) return status;
        place++;
        skip_blanks(text);
        if (!skip_byte(text, ',')) break;
        skip_blanks(text);
    } while (text->at < text->end);
    bool is_complete = text->at == text->end && next == answers->place_count;
    return is_complete ? DONE : LEFT_TO_PYTHON;
}

/* Fills in the names, of which the last `total_count` are totals. False, with an
exception, if there are too few or too many, or one is not bytes. */
static bool set_names(Request *request, PyObject *names, Py_ssize_t total_count) {
    request->name_count = PyTuple_Size(names);
    request->plain_count = request->name_count - total_count;
    bool is_valid = total_count >= 0 && request->plain_count >= 1
                    && request->name_count <= MAX_ARG_NAMES;
    if (!is_valid) {
        PyErr_SetString(PyExc_ValueError, "1 to 32 names");
        return false;
    }
    for (Py_ssize_t n = 0; n < request->name_count; n++) {
        char *name;
        Py_ssize_t length;
        PyObject *item = PyTuple_GetItem(names, n);
        if (!item || PyBytes_AsStringAndSize(item, &name, &length)) return false;
        request->names[n] = (Span){name, length};
        request->name_lengths |= UINT64_C(1) << (length & 63);
    }
    return true;
}

/* The tuple that scan.pyi describes. Takes the columns away from `answers`. */
static PyObject *result_of_args(PyObject *module, Answers *answers) {
    Py_ssize_t sequence_values = answers->sequence_count * SEQUENCE_COLUMNS;
    return Py_BuildValue(
        "(NNNN)",
        TAKE_COLUMN(module, answers->numbers, answers->place_count),
        texts_of(&answers->distinct),
        TAKE_COLUMN(module, answers->sequences, sequence_values),
        TAKE_COLUMN(module, answers->totals, answers->total_count));
}

static PyObject *arguments(PyObject *module, PyObject *given) {
    Py_buffer buffer, places;
    PyObject *names;
    Py_ssize_t total_count;
    int wants_sequences;
    Request request;
    Answers answers;
    memset(&request, 0, sizeof request);
    memset(&answers, 0, sizeof answers);
    if (!PyArg_ParseTuple(given, "y*y*O!np", &buffer, &places, &PyTuple_Type, &names,
                          &total_count, &wants_sequences))
        return NULL;
    request.wants_sequences = wants_sequences;
    answers.places = places.buf;
    answers.place_count = places.len / (Py_ssize_t)sizeof(int64_t);
    int status = FAILED;
    if (set_names(&request, names, total_count)
        && (!answers.place_count || RESIZE(answers.numbers, answers.place_count))) {
        status = LEFT_TO_PYTHON;
        if (buffer.len < INT32_MAX) {
            Cursor text = {buffer.buf, (const char *)buffer.buf + buffer.len, false};
            Py_BEGIN_ALLOW_THREADS
            status = answer_all(&text, &request, &answers);
            Py_END_ALLOW_THREADS
        }
    }
    PyObject *result =
        status == DONE ? result_of_args(module, &answers) : nothing_for(status);
    free_table_of_copies(&answers.distinct);
    free(answers.numbers);
    free(answers.sequences);
    free(answers.totals);
    free(request.joined_values);
    PyBuffer_Release(&places);
    PyBuffer_Release(&buffer);
    return result;
}

/* ---- The module ---- */

static PyMethodDef methods[] = {
    {"events", events, METH_VARARGS, "The columns of elements, or None."},
    {"arguments", arguments, METH_VARARGS, "Some args of some elements, or None."},
    {NULL, NULL, 0, NULL},
};

static int init_module(PyObject *module) {
    PyObject *word = PyUnicode_FromString("fusetui");
    if (!word) return -1;
    hash_seed = (uint64_t)PyObject_Hash(word); /* Python's hashes are seeded */
    Py_DECREF(word);
    ModuleState *state = PyModule_GetState(module);
    state->column_type =
        (PyTypeObject *)PyType_FromModuleAndSpec(module, &column_spec, NULL);
    if (!state->column_type) return -1;
    return PyModule_AddIntConstant(module, "MAX_ARG_NAMES", MAX_ARG_NAMES);
}

static int traverse_module(PyObject *module, visitproc visit, void *arg) {
    ModuleState *state = PyModule_GetState(module);
    if (state) Py_VISIT(state->column_type);
    return 0;
}

static int clear_module(PyObject *module) {
    ModuleState *state = PyModule_GetState(module);
    if (state) Py_CLEAR(state->column_type);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, init_module}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "scan",
    .m_doc = "JSON of a trace to columns.",
    .m_size = sizeof(ModuleState),
    .m_methods = methods,
    .m_slots = module_slots,
    .m_traverse = traverse_module,
    .m_clear = clear_module,
};

PyMODINIT_FUNC PyInit_scan(void) { return PyModuleDef_Init(&definition); }
