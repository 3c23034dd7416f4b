# Writes the litmus tests of the table (its head explains the notation): one file a test and target, in the
# directories c, lse, rcpc, llsc and x86 of `out`; and the list of tests, `out`/tests.
#
# A line of the list: test, row, section, access that is weakened (`-` if none), expected verdict (Never or Sometimes).

BEGIN {
    split("c lse rcpc llsc x86", targets, " ")
    # One step weaker, by kind of access.
    weaker["R.sc"] = "acq"; weaker["R.acq"] = "rlx"
    weaker["W.sc"] = "rel"; weaker["W.rel"] = "rlx"
    weaker["M.sc"] = "ar"; weaker["M.ar"] = "acq rel"; weaker["M.acq"] = "rlx"; weaker["M.rel"] = "rlx"
    weaker["F.sc"] = "ar"; weaker["F.ar"] = "acq rel"; weaker["F.acq"] = "none"; weaker["F.rel"] = "none"
    legal["R"] = " na rlx acq sc "; legal["W"] = " na rlx rel sc "; legal["F"] = " none acq rel ar sc "
    legal["U"] = legal["X"] = legal["C"] = " rlx acq rel ar sc "
    c_order["rlx"] = "relaxed"; c_order["acq"] = "acquire"; c_order["rel"] = "release"
    c_order["ar"] = "acq_rel"; c_order["sc"] = "seq_cst"
    suffix["rlx"] = ""; suffix["acq"] = "A"; suffix["rel"] = "L"; suffix["ar"] = suffix["sc"] = "AL"
    split("rax rbx rcx rdx rsi rdi r8 r9", wide, " "); split("eax ebx ecx edx esi edi r8d r9d", narrow, " ")
}

function fail(text) { printf "table, row %s: %s\n", row, text > "/dev/stderr"; failed = 1; exit 1 }

/^[ \t]*(#|$)/ { next }
/^[^ ]/ { finish(); row = $1; section = $2; threads = steps = 0; outcome = ""; delete init; next }
$1 == "|" { thread(substr($0, index($0, "|") + 1)); next }
$1 == "init" { for (i = 2; i <= NF; i++) { split($i, part, "="); init[part[1]] = part[2] } next }
$1 == "never" || $1 == "sometimes" {
    if (outcome) fail("two outcomes")
    expected = $1 == "never" ? "Never" : "Sometimes"
    outcome = $0; sub(/^ *[a-z]+ */, "", outcome); next
}
{ fail("not understood: " $0) }
END { if (!failed) finish() }

# Reads the steps of a thread.
function thread(text,    n, i, words, parts, orders, s) {
    n = split(text, parts, ";")
    threads++
    for (i = 1; i <= n; i++) {
        gsub(/^ +| +$/, "", parts[i])
        s = ++steps
        by[s] = threads - 1; number[s] = i; text_of[s] = parts[i]; result[s] = order[s] = needed[s] = kind[s] = ""
        split(parts[i], words, / +/)
        if (parts[i] ~ /^\?/) { kind[s] = "?"; target[s] = substr(parts[i], 2); continue }
        if (words[1] ~ /^[a-z]=/) { result[s] = substr(words[1], 1, 1); words[1] = substr(words[1], 3) }
        kind[s] = substr(words[1], 1, 1)
        split(substr(words[1], 3), orders, "~")
        order[s] = orders[1]; needed[s] = orders[2]; variable[s] = words[2]; first[s] = words[3]; second[s] = words[4]
        if (!(kind[s] in legal) || !index(legal[kind[s]], " " order[s] " ")) fail("no such access: " parts[i])
        if (needed[s] && !index(legal[kind[s]], " " needed[s] " ")) fail("no such access: " parts[i])
    }
}

# Writes the tests of the row that has been read.
function finish(    s, i, n, below, from, key) {
    if (!row) return
    if (!outcome || threads < 2) fail("threads or outcome are missing")
    for (s = 1; s <= steps; s++) now[s] = order[s]
    test(row, "-", expected)
    if (expected == "Sometimes") return
    for (s = 1; s <= steps; s++) {
        if (kind[s] == "?" || order[s] == "na") continue
        from = order[s]
        if (needed[s]) {
            from = now[s] = needed[s]
            test(row "+P" by[s] "." number[s] "." from, label(s), "Never")
        }
        key = kind[s] ~ /[UXC]/ ? "M." from : kind[s] "." from
        n = split(weaker[key], below, " ")
        for (i = 1; i <= n; i++) {
            now[s] = below[i]
            test(row "+P" by[s] "." number[s] "." below[i], label(s), "Sometimes")
        }
        now[s] = order[s]
    }
}

function label(s) { return "P" by[s] "." number[s] "_" kind[s] "." order[s] (variable[s] ? "(" variable[s] ")" : "") "->" now[s] }

function test(name, weakened, verdict,    t) {
    print name, row, section, weakened, verdict > (out "/tests")
    for (t = 1; t <= 5; t++) write(name, targets[t], out "/" targets[t] "/" name ".litmus")
}

function write(name, to, file) {
    body = ""; conditions = ""; delete cells; delete length_of; delete home; delete old; delete used; delete seen; variables = ""
    collect()
    if (to == "c") { write_c(name, file); return }
    if (to == "x86") write_x86(); else write_arm(to)
    write_columns(name, to, file)
}

# Finds the variables, and the value that a read-modify-write finds if the outcome comes true.
function collect(    s, n, i, parts, equation) {
    for (s = 1; s <= steps; s++) {
        if (kind[s] ~ /[RWUXC]/ && !(variable[s] in seen)) { seen[variable[s]] = ++seen_count; variables = variables " " variable[s] }
        if (result[s]) { if (result[s] in home) fail("result " result[s] " is there twice"); home[result[s]] = s }
    }
    wanted = outcome
    for (s = 1; s <= steps; s++) if (kind[s] == "?") wanted = wanted " & " target[s]
    n = split(wanted, parts, " *& *")
    wants = 0
    for (i = 1; i <= n; i++) {
        split(parts[i], equation, "=")
        wants++; want_name[wants] = equation[1]; want_value[wants] = equation[2]
        if (equation[1] !~ /^\[/) {
            if (!(equation[1] in home)) fail("no such result: " equation[1])
            s = home[equation[1]]
            if (kind[s] == "C" && equation[2] != 1) fail("a compare-exchange of an outcome must succeed")
            old[s] = kind[s] == "C" ? first[s] : equation[2]
        }
    }
    # A compare-exchange without a result must succeed.
    for (s = 1; s <= steps; s++) if (kind[s] == "C") old[s] = first[s]
}

function condition(text) { conditions = conditions (conditions ? " /\\ " : "") text }

function write_c(name, file,    t, s, p, n, vars, i, o, closing, call, dest, list) {
    n = split(variables, vars, " ")
    delete plain
    for (s = 1; s <= steps; s++) if (order[s] == "na") plain[variable[s]] = 1
    body = "C " name "\n{"
    for (i = 1; i <= n; i++) body = body " [" vars[i] "]=" init[vars[i]] + 0 ";"
    for (s = 1; s <= steps; s++) if (kind[s] == "C") body = body " e" s "=" first[s] ";"
    body = body " }\n"
    for (t = 0; t < threads; t++) {
        list = closing = ""
        for (i = 1; i <= n; i++) list = list (list ? ", " : "") (vars[i] in plain ? "int* " : "atomic_int* ") vars[i]
        for (s = 1; s <= steps; s++) if (by[s] == t && kind[s] == "C") list = list ", int* e" s
        body = body "\nP" t " (" list ") {\n"
        for (s = 1; s <= steps; s++) if (by[s] == t && result[s]) body = body "  int " result[s] " = 0;\n"
        for (s = 1; s <= steps; s++) {
            if (by[s] != t) continue
            o = now[s] == "none" ? "" : "memory_order_" c_order[now[s]]
            dest = "  " (result[s] ? result[s] " = " : "")
            if (kind[s] == "?") { split(target[s], p, "="); body = body "  if (" p[1] " == " p[2] ") {\n"; closing = closing "  }\n"; continue }
            if (kind[s] == "F") call = o ? "  atomic_thread_fence(" o ")" : "  // no fence"
            else if (now[s] == "na") call = kind[s] == "R" ? dest "*" variable[s] : "  *" variable[s] " = " first[s]
            else if (kind[s] == "R") call = dest "atomic_load_explicit(" variable[s] ", " o ")"
            else if (kind[s] == "W") call = "  atomic_store_explicit(" variable[s] ", " first[s] ", " o ")"
            else {
                if (!result[s]) dest = "  int x" s " = "
                if (kind[s] == "U") call = dest "atomic_fetch_add_explicit(" variable[s] ", " first[s] ", " o ")"
                else if (kind[s] == "X") call = dest "atomic_exchange_explicit(" variable[s] ", " first[s] ", " o ")"
                else {
                    call = dest "atomic_compare_exchange_strong_explicit(" variable[s] ", e" s ", " second[s] ", " o ", memory_order_relaxed)"
                    if (!result[s]) condition(t ":x" s "=1")
                }
            }
            body = body call (call ~ /\/\// ? "" : ";") "\n"
        }
        body = body closing "}\n"
    }
    for (i = 1; i <= wants; i++) condition(want_name[i] ~ /^\[/ ? want_name[i] "=" want_value[i] : by[home[want_name[i]]] ":" want_name[i] "=" want_value[i])
    printf "%s\nexists (%s)\n", body, conditions > file
    close(file)
}

function cell(t, text) { cells[t, ++length_of[t]] = text }

# Code for AArch64, as LLVM makes it of each access: with LSE's instructions (lse), also with ldapr for acquire loads
# (rcpc), and with exclusive loads and stores only (llsc). The last are loops; the outcome is that of the turn that succeeds.
function write_arm(to,    s, t, v, d, r, st, n, i, vars, x, nr, p) {
    n = split(variables, vars, " ")
    for (i = 1; i <= n; i++) x[vars[i]] = "X" (7 + i)
    body = "{"
    for (i = 1; i <= n; i++) body = body " " vars[i] "=" init[vars[i]] + 0 ";"
    for (t = 0; t < threads; t++) for (i = 1; i <= n; i++) body = body " " t ":" x[vars[i]] "=" vars[i] ";"
    body = body " }"
    delete reg
    for (t = 0; t < threads; t++) {
        nr = 0; st = 20; delete p
        for (s = 1; s <= steps; s++) {
            if (by[s] != t) continue
            v = "[" x[variable[s]] "]"
            if (result[s] || kind[s] == "C") { reg[s] = nr++; d = "W" reg[s] } else d = "WZR"
            if (kind[s] == "?") {
                split(target[s], p, "="); r = home[p[1]]
                cell(t, "CMP W" reg[r] ",#" old[r]); cell(t, "B.NE L" t); used[t] = 1
            } else if (kind[s] == "F") {
                if (now[s] != "none") cell(t, now[s] == "acq" ? "DMB ISHLD" : "DMB ISH")
            } else if (kind[s] == "R") {
                cell(t, (now[s] == "sc" ? "LDAR" : now[s] == "acq" ? (to == "rcpc" ? "LDAPR" : "LDAR") : "LDR") " " d "," v)
            } else if (kind[s] == "W") {
                cell(t, "MOV W16,#" first[s]); cell(t, (now[s] ~ /^(sc|rel)$/ ? "STLR" : "STR") " W16," v)
            } else if (to == "llsc") {
                if (d == "WZR") d = "W18"
                cell(t, (now[s] ~ /^(acq|ar|sc)$/ ? "LDAXR " : "LDXR ") d "," v)
                cell(t, kind[s] == "U" ? (first[s] < 0 ? "SUB W16," d ",#" (-first[s]) : "ADD W16," d ",#" first[s]) : "MOV W16,#" (kind[s] == "X" ? first[s] : second[s]))
                cell(t, (now[s] ~ /^(rel|ar|sc)$/ ? "STLXR" : "STXR") " W" st ",W16," v)
                condition(t ":X" st++ "=0")
                if (kind[s] == "C" && !result[s]) condition(t ":X" reg[s] "=" first[s])
            } else if (kind[s] == "C") {
                cell(t, "MOV " d ",#" first[s]); cell(t, "MOV W16,#" second[s])
                cell(t, "CAS" suffix[now[s]] " " d ",W16," v)
                if (!result[s]) condition(t ":X" reg[s] "=" first[s])
            } else {
                # LLVM keeps the result of an RMW that acquires: one without a result would not acquire.
                if (d == "WZR" && now[s] ~ /^(acq|ar|sc)$/) d = "W18"
                cell(t, "MOV W16,#" first[s])
                cell(t, (kind[s] == "U" ? "LDADD" : "SWP") suffix[now[s]] " W16," d "," v)
            }
        }
        if (used[t]) cell(t, "L" t ":")
    }
    for (i = 1; i <= wants; i++) condition(want_name[i] ~ /^\[/ ? want_name[i] "=" want_value[i] : by[home[want_name[i]]] ":X" reg[home[want_name[i]]] "=" old[home[want_name[i]]])
}

# Code for x86. An RMW of which the outcome names the old value is an exchange for the value that it writes then. Guards are left
# out: this processor orders nothing by them.
function write_x86(    s, t, n, i, vars, nr, v) {
    n = split(variables, vars, " ")
    body = "{"
    for (i = 1; i <= n; i++) body = body " " vars[i] "=" init[vars[i]] + 0 ";"
    body = body " }"
    delete reg
    for (t = 0; t < threads; t++) {
        nr = 0
        for (s = 1; s <= steps; s++) {
            if (by[s] != t || kind[s] == "?") continue
            v = "(" variable[s] ")"
            if (kind[s] == "F") { if (now[s] == "sc") cell(t, "mfence"); continue }
            if (kind[s] == "W" && now[s] != "sc") { cell(t, "movl $" first[s] "," v); continue }
            if (kind[s] == "U" && !(s in old)) { cell(t, "lock addl $" first[s] "," v); continue }
            reg[s] = ++nr
            if (kind[s] == "R") { cell(t, "movl " v ",%" narrow[nr]); continue }
            cell(t, "movl $" (kind[s] == "U" ? old[s] + first[s] : kind[s] == "C" ? second[s] : first[s]) ",%" narrow[nr])
            cell(t, "xchgl %" narrow[nr] "," v)
            if (kind[s] == "C" && !result[s]) condition(t ":" wide[reg[s]] "=" first[s])
        }
    }
    for (i = 1; i <= wants; i++) condition(want_name[i] ~ /^\[/ ? want_name[i] "=" want_value[i] : by[home[want_name[i]]] ":" wide[reg[home[want_name[i]]]] "=" old[home[want_name[i]]])
}

function write_columns(name, to, file,    t, i, most, line) {
    printf "%s %s\n%s\n", to == "x86" ? "X86_64" : "AArch64", name, body > file
    line = ""
    for (t = 0; t < threads; t++) { line = line (t ? "|" : "") sprintf(" %-22s", "P" t); if (length_of[t] > most) most = length_of[t] }
    print line ";" > file
    for (i = 1; i <= most; i++) {
        line = ""
        for (t = 0; t < threads; t++) line = line (t ? "|" : "") sprintf(" %-22s", cells[t, i])
        print line ";" > file
    }
    printf "exists (%s)\n", conditions > file
    close(file)
}
