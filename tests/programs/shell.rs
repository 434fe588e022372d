//! Shells, and what is in every system.

use crate::support::{Case, check};

#[test]
fn shell() {
    check(&[
        Case::new(
            "pipelines and process substitution",
            "shell",
            "seq 1000 | grep 7 | sort -rn | head -3 | tac
diff <(seq 3) <(seq 2; echo x) | tail -1
paste <(echo a) <(echo b)
seq 5 | tee >(wc -l > count) > /dev/null; while [ ! -s count ]; do :; done; cat count; rm count
",
            "979\n987\n997\n> x\na\tb\n5\n",
        ),
        Case::new(
            "here-documents, arrays and arithmetic",
            "shell",
            "cat <<E\n$((6 * 7))\nE\na=(x y z); echo ${#a[@]} ${a[-1]}; declare -A m=([k]=v); echo ${m[k]}
read -r first <<< 'one two'; echo $first; printf '%05d|%s\\n' 42 end; echo ${first^^}; [[ abc =~ ^a.c$ ]] && echo match
",
            "42\n3 z\nv\none two\n00042|end\nONE TWO\nmatch\n",
        ),
        Case::new(
            "jobs, traps and signals",
            "shell",
            "sleep 60 & kill $!; wait $!; echo $?
(sleep 0.05; kill -USR1 $$) & trap 'echo caught' USR1; wait; wait
trap 'echo bye' EXIT; coproc cat; echo hi >&${COPROC[1]}; read -r x <&${COPROC[0]}; echo $x; kill $COPROC_PID
",
            "143\ncaught\nhi\nbye\n",
        ),
        Case::new(
            "standard descriptors by name",
            "shell",
            "echo out > /dev/stdout; echo in | cat /dev/stdin; cat /dev/fd/3 3< <(echo three); head -c3 /dev/zero | od -An -c",
            "out\nin\nthree\n  \\0  \\0  \\0\n",
        ),
        Case::new(
            "coreutils and archives",
            "shell",
            "mkdir d; echo x > d/f; tar czf a.tgz d; rm -r d; tar xzf a.tgz; cat d/f; find . -type f | sort | xargs -n1 basename
sed s/x/y/ d/f; awk '{print $1 $1}' d/f; sha256sum < d/f | cut -c1-8; date -u -d @0 +%F; mktemp -u | cut -c1-5; rm -r d a.tgz
",
            "x\na.tgz\nf\nmain.sh\ny\nxx\n73cb3858\n1970-01-01\n/tmp/\n",
        ),
    ]);
}
