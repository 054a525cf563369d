import re,sys,time
import helpers, torch
src=open(f"/tmp/drafts/{sys.argv[1]}.py").read()
cells=re.split(r"^# %%",src,flags=re.M)
import types
ns={"__name__":"__main__"}
import linecache
for i,c in enumerate(cells[1:]):
    head,_,body=c.partition("\n")
    if "[markdown]" in head: continue
    if "measure(" in body or "evidence_of(overlap)" in body or "recorded(" in body: print("-- skip",i); continue
    t=time.time()
    lines=body.rstrip().splitlines()
    try:
        import ast
        tree=ast.parse(body)
        last=None
        if tree.body and isinstance(tree.body[-1],ast.Expr): last=ast.Expression(tree.body.pop().value)
        fn=f"<cell{i}>"; linecache.cache[fn]=(len(body),None,body.splitlines(True),fn)
        exec(compile(tree,fn,"exec"),ns)
        v=eval(compile(last,fn,"eval"),ns) if last else None
        if v is not None: print(f"[{i}] {time.time()-t:.1f}s", repr(v)[:1800])
        else: print(f"[{i}] {time.time()-t:.1f}s")
    except Exception as e:
        print(f"[{i}] {time.time()-t:.1f}s !!!", type(e).__name__, str(e)[:900])
