//! Node.

use crate::support::{Case, check};

#[test]
fn node() {
    let cases = [
        Case::new(
            "worker threads",
            "javascript",
            "const { Worker } = require('worker_threads');
const shared = new SharedArrayBuffer(4);
const code = `const { parentPort, workerData } = require('worker_threads');
Atomics.add(new Int32Array(workerData), 0, 1); parentPort.postMessage(1);`;
let left = 4;
for (let i = 0; i < 4; i++) new Worker(code, { eval: true, workerData: shared })
  .on('exit', () => { if (--left == 0) console.log(new Int32Array(shared)[0]); });
",
            "4\n",
        ),
        Case::new(
            "fs",
            "javascript",
            "const fs = require('fs'), os = require('os'), path = require('path');
fs.mkdirSync('a/b', { recursive: true }); fs.writeFileSync('a/b/c', 'ünïcode'); fs.appendFileSync('a/b/c', '!');
console.log(fs.readFileSync('a/b/c', 'utf8'), fs.statSync('a/b/c').size);
fs.symlinkSync('b', 'a/link'); console.log(fs.realpathSync('a/link'));
fs.cpSync('a', 'copy', { recursive: true }); console.log(fs.readdirSync('copy').sort().join());
fs.promises.readFile('copy/b/c', 'utf8').then(async text => {
  console.log(text); for await (const d of await fs.promises.opendir('a')) if (d.isDirectory()) console.log(d.name);
  fs.createReadStream('a/b/c').pipe(require('zlib').createGzip()).pipe(fs.createWriteStream('z'))
    .on('finish', () => { console.log(fs.existsSync('z')); for (const p of ['a', 'copy', 'z']) fs.rmSync(p, { recursive: true }); });
});
console.log(os.tmpdir(), fs.mkdtempSync('/tmp/x-').length, path.resolve('.'), os.userInfo().username);
",
            "ünïcode! 10\n/work/a/b\nb,link\n/tmp 13 /work sandbox\nünïcode!\nb\ntrue\n",
        ),
        Case::new(
            "child processes",
            "javascript",
            "const cp = require('child_process');
console.log(cp.execFileSync('echo', ['sync']).toString().trim(), cp.spawnSync('sh', ['-c', 'exit 3']).status);
if (process.argv[2] == 'child') process.exit(0);
const child = cp.spawn('cat'); child.stdin.end('through cat');
child.stdout.on('data', d => console.log(d.toString()));
child.on('close', code => {
  console.log('closed', code);
  const asleep = cp.spawn('sleep', ['60']); asleep.kill(); asleep.on('exit', (_, signal) => {
    console.log(signal);
    const forked = cp.fork('/work/main.js', ['child'], { silent: true }); forked.on('exit', c => console.log('forked', c));
  });
});
",
            "sync 3\nthrough cat\nclosed 0\nSIGTERM\nforked 0\n",
        ),
        Case::new(
            "crypto, timers and streams",
            "javascript",
            "const crypto = require('crypto');
console.log(crypto.createHash('sha256').update('abc').digest('hex').slice(0, 8), crypto.randomBytes(8).length);
const { privateKey, publicKey } = crypto.generateKeyPairSync('ed25519');
console.log(crypto.verify(null, Buffer.from('m'), publicKey, crypto.sign(null, Buffer.from('m'), privateKey)));
crypto.pbkdf2('p', 's', 1000, 4, 'sha1', (e, key) => console.log(key.toString('hex')));
setTimeout(() => console.log('later', typeof performance.now(), new Intl.NumberFormat('de').format(1234.5)), 200);
console.log(require('tls').rootCertificates.length > 50, process.version.startsWith('v'), new Date(0).toISOString());
process.on('exit', () => console.log(process.memoryUsage().rss > 0));
",
            "ba7816bf 8\ntrue\ntrue true 1970-01-01T00:00:00.000Z\nac8b95db\nlater number 1.234,5\ntrue\n",
        ),
        Case::new(
            "wasm and a heap",
            "javascript",
            "const bytes = Uint8Array.of(0,97,115,109,1,0,0,0,1,7,1,96,2,127,127,1,127,3,2,1,0,7,7,1,3,97,100,100,0,0,10,9,1,7,0,32,0,32,1,106,11);
WebAssembly.instantiate(bytes).then(m => console.log(m.instance.exports.add(40, 2)));
let a = []; for (let i = 0; i < 1e6; i++) a.push({ i }); console.log(a.length, [3, 1, 2].toSorted ? 'new' : 'old');
",
            "1000000 new\n42\n",
        ),
    ];
    check(&cases.map(|case| Case { needs: &["node"], ..case }));
}
